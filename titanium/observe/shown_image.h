// A picture that a run has drawn to show what its model has learnt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace titanium::observe {

struct ShownImage {
  std::filesystem::path file;  // where it has been written
  std::string caption;
  int64_t width = 0;
  int64_t height = 0;
  std::string png;  // its bytes
};

}  // namespace titanium::observe
