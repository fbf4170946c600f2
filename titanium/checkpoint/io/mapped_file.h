// A whole file in memory, read by the operating system page by page when touched; of an address, fetched at once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "titanium/base/files/mapped_range.h"

namespace titanium::checkpoint {

// Writing to the bytes changes this process's copy of a page, never the file. The file must not shrink meanwhile:
// see base/files/mapped_range.h.
class MappedFile {
 public:
  // Throws Error when `path` is missing, a directory or unreadable; `what` names it in the message.
  MappedFile(const std::filesystem::path& path, std::string_view what);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
  std::optional<MappedRange> range_;  // none: what was fetched
  std::vector<std::byte> fetched_;
};

}  // namespace titanium::checkpoint
