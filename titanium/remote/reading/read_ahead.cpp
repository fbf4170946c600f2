#include "titanium/remote/reading/read_ahead.h"

#include <algorithm>
#include <cstring>

namespace titanium::remote {
namespace {

constexpr int64_t kSmallest = 64 << 10, kLargest = 4 << 20;
constexpr int64_t kBehindEnd = 16 << 10;  // the first piece there; the next double up to the usual size
constexpr int64_t kDeepest = 8;
constexpr int64_t kPiecesInMemory = 4;  // at least

}  // namespace

ReadAhead::ReadAhead(std::unique_ptr<ByteSource> source, const ReadAheadPlace& place)
    : source_(std::move(source)),
      next_(place.offset),
      end_(std::min(place.end, source_->size())),
      piece_bytes_(place.memory_bytes == 0 ? kLargest
                                           : std::clamp(place.memory_bytes / kPiecesInMemory, kSmallest, kLargest)),
      behind_end_(kBehindEnd),
      deepest_(static_cast<size_t>(place.memory_bytes == 0 ? kDeepest
                                                           : std::clamp(place.memory_bytes / piece_bytes_ - 1,
                                                                        kPiecesInMemory - 1, kDeepest))) {}

void ReadAhead::start_read(int64_t limit) {
  const int64_t count = std::min(piece_bytes_, limit - next_);
  under_way_.push_back(std::async(std::launch::async, [source = source_, at = next_, count] {
    std::vector<char> bytes(static_cast<size_t>(count));
    source->read(at, bytes);
    return bytes;
  }));
  next_ += count;
}

void ReadAhead::start_reads() {
  while (under_way_.size() < depth_ && next_ < end_) start_read(end_);
}

size_t ReadAhead::read(char* out, size_t size) {
  if (used_ == piece_.size()) {
    start_reads();
    if (under_way_.empty() && next_ < source_->size()) {
      start_read(std::min(next_ + behind_end_, source_->size()));
      behind_end_ = std::min(behind_end_ * 2, piece_bytes_);
    }
    if (under_way_.empty()) return 0;
    const bool waits = under_way_.front().wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    if (waits) depth_ = std::min(depth_ + 1, deepest_);
    piece_ = under_way_.front().get();
    under_way_.pop_front();
    used_ = 0;
    start_reads();
  }
  const size_t count = std::min(size, piece_.size() - used_);
  std::memcpy(out, piece_.data() + used_, count);
  used_ += count;
  return count;
}

}  // namespace titanium::remote
