// Cuts a stream of bytes into lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace titanium::launch {

class LineSplitter {
 public:
  // Longer lines are handed on in pieces, so that a process which never ends its line cannot fill the memory.
  static constexpr size_t kLongestLine = 64 * 1024;

  using Receiver = std::function<void(std::string_view line)>;  // without the newline
  explicit LineSplitter(Receiver receiver) : receiver_(std::move(receiver)) {}

  void feed(std::string_view bytes);
  // The stream has ended: hands on a last line that has no newline.
  void finish();

 private:
  Receiver receiver_;
  std::string partial_;
};

}  // namespace titanium::launch
