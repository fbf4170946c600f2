#include "titanium/launch/line_splitter.h"

namespace titanium::launch {

void LineSplitter::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t room = kLongestLine - partial_.size();
    const size_t newline = bytes.substr(0, room).find('\n');
    const size_t taken = std::min(newline == std::string_view::npos ? room : newline, bytes.size());
    partial_ += bytes.substr(0, taken);
    const bool line_ended = newline != std::string_view::npos;
    bytes.remove_prefix(line_ended ? taken + 1 : taken);
    if (line_ended || partial_.size() == kLongestLine) {
      receiver_(partial_);
      partial_.clear();
    }
  }
}

void LineSplitter::finish() {
  if (!partial_.empty()) receiver_(partial_);
  partial_.clear();
}

}  // namespace titanium::launch
