// The bytes of a file at any place, here or at an address.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "titanium/data/byte_stream.h"
#include "titanium/remote/reading/windowed_bytes.h"

namespace titanium::data {

class FileBytes {
 public:
  // A compressed file is decompressed into memory; of an address, windows of up to `largest_window` bytes are read
  // (Note [Windows]). Throws Error when it cannot be read, or has more than 2 GiB then.
  explicit FileBytes(std::filesystem::path path, Compression compression = Compression::kNone,
                     int64_t largest_window = remote::WindowedBytes::kLargest);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  // Bytes [begin, end) will be read from front to back, and those after them will not be.
  void expect(int64_t begin, int64_t end) const {
    if (remote_) remote_->expect(begin, end);
  }

  // Throws Error when the file ends before that, or cannot be read.
  void read(int64_t offset, std::span<char> out) const;
  std::string text(int64_t offset, int64_t size) const;
  // `count` little-endian numbers.
  template <typename T>
  std::vector<T> numbers(int64_t offset, int64_t count) const {
    check(offset, count, sizeof(T));
    std::vector<T> values(static_cast<size_t>(count));
    read(offset, {reinterpret_cast<char*>(values.data()), values.size() * sizeof(T)});
    return values;
  }
  template <typename T>
  T number(int64_t offset) const {
    return numbers<T>(offset, 1)[0];
  }

 private:
  void check(int64_t offset, int64_t count, int64_t width) const;

  std::filesystem::path path_;
  int file_ = -1;
  std::unique_ptr<remote::WindowedBytes> remote_;  // of an address
  std::string content_;                            // of a compressed file
  int64_t size_ = 0;
};

}  // namespace titanium::data
