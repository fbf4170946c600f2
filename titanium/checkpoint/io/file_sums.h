// Checksums of files, block by block: whoever reads a part of a file can check that part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace titanium::checkpoint {

constexpr uint64_t kSumBlock = uint64_t{4} << 20;

// CRC-32 of each `kSumBlock` bytes of a file; the last block may be shorter.
struct FileSum {
  std::string file;
  uint64_t size = 0;
  std::vector<uint32_t> blocks;
  bool operator==(const FileSum&) const = default;
};

// Makes the sum of a file out of bytes that pass by in their order.
class FileSummer {
 public:
  void add(std::span<const std::byte> bytes);
  // The CRC-32 of what was added since the last call of this.
  uint32_t take_crc();
  // To be called once, after the last byte.
  FileSum finish(const std::string& file);

 private:
  void close_stretch();

  uint64_t size_ = 0;
  std::vector<uint32_t> blocks_;
  // Bytes are looked at once, in stretches that end where a block ends or where `take_crc` is called.
  uint32_t stretch_ = 0, block_ = 0, since_take_ = 0;
  uint64_t stretch_size_ = 0;
};

FileSum sum_of(const std::string& file, std::span<const std::byte> content);

}  // namespace titanium::checkpoint
