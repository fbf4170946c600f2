// The "model" of a tokenizer: from words to ids.
#pragma once

#include <string_view>
#include <vector>

#include "titanium/data/tokenizer/model/vocabulary.h"

namespace titanium::data {

// Immutable and thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  // Appends the ids of `word`, which is not empty.
  virtual void encode(std::string_view word, std::vector<TokenId>& ids) const = 0;

  virtual const Vocabulary& vocabulary() const = 0;
};

}  // namespace titanium::data
