// Several checks whose errors are told together.
#pragma once

#include <string>
#include <vector>

#include "titanium/base/error.h"

namespace titanium {

// Runs `check`; the sentence of an Error that it throws is appended to `sentences`.
template <typename Check>
void collect_errors(std::vector<std::string>& sentences, const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    sentences.emplace_back(error.what());
  }
}

}  // namespace titanium
