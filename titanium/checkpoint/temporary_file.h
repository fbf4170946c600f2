// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace titanium::checkpoint {

// Written beside its place, then moved there; removed when something fails before that. Missing folders are made.
// Everything here throws Error that names the target and the reason of the system.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Bytes written so far.
  uint64_t size() const { return size_; }
  // The bytes are on the disk before the name is.
  void publish();

 private:
  void check(bool good) const;

  std::filesystem::path target_;
  std::filesystem::path path_;
  int file_ = -1;
  uint64_t size_ = 0;
};

// Returns when the names in the folder are on the disk.
void sync_folder(const std::filesystem::path& folder);

}  // namespace titanium::checkpoint
