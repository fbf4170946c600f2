// Follows a file of lines that another process writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace titanium::observe {

class AppendedLines {
 public:
  // The file need not exist yet.
  explicit AppendedLines(std::filesystem::path path) : path_(std::move(path)) {}

  enum class News { kNone, kMore, kAnew };
  // Hands on the lines that have been added since the last call, without their newlines. A last line without one is
  // still being written: it comes later. A file that was replaced or has become shorter is read from its beginning:
  // `anew` is called first. Reads only, and takes no locks. Never throws for what is in the file; a file that cannot be
  // read has no lines.
  News read(const std::function<void(std::string_view line)>& receive, const std::function<void()>& anew);

 private:
  std::filesystem::path path_;
  uint64_t inode_ = 0;
  uint64_t offset_ = 0;  // of the byte after the last whole line
};

}  // namespace titanium::observe
