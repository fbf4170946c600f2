#include "titanium/checkpoint/io/file_sums.h"

#include <algorithm>
#include <utility>

#include "titanium/checkpoint/io/crc32.h"

namespace titanium::checkpoint {

void FileSummer::close_stretch() {
  block_ = crc32_combine(block_, stretch_, stretch_size_);
  since_take_ = crc32_combine(since_take_, stretch_, stretch_size_);
  stretch_ = 0;
  stretch_size_ = 0;
}

void FileSummer::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min<uint64_t>(bytes.size(), kSumBlock - size_ % kSumBlock));
    stretch_ = crc32(piece, stretch_);
    stretch_size_ += piece.size();
    size_ += piece.size();
    if (size_ % kSumBlock == 0) {
      close_stretch();
      blocks_.push_back(std::exchange(block_, 0));
    }
    bytes = bytes.subspan(piece.size());
  }
}

uint32_t FileSummer::take_crc() {
  close_stretch();
  return std::exchange(since_take_, 0);
}

FileSum FileSummer::finish(const std::string& file) {
  close_stretch();
  if (size_ % kSumBlock != 0) blocks_.push_back(block_);
  return {file, size_, std::move(blocks_)};
}

FileSum sum_of(const std::string& file, std::span<const std::byte> content) {
  FileSummer summer;
  summer.add(content);
  return summer.finish(file);
}

}  // namespace titanium::checkpoint
