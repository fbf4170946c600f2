// A mapped file that becomes shorter, or whose disk fails, raises SIGBUS where its memory is read: without a word, and
// where no exception can be thrown. This names the file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace titanium {

// Says, while it lives, that `memory` shows the file `name`. Thread safe.
class MappedRange {
 public:
  MappedRange(std::span<const std::byte> memory, std::string_view name);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

 private:
  std::span<const std::byte> memory_;
};

// For the program, once: from now on SIGBUS within a MappedRange ends it with exit code 1 and a sentence on stderr that
// names the file. Elsewhere SIGBUS does what it does by default.
void explain_lost_pages();

}  // namespace titanium
