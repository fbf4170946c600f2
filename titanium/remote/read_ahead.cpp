#include "titanium/remote/read_ahead.h"

#include <algorithm>
#include <cstring>

namespace titanium::remote {
namespace {

constexpr int64_t kPiece = 4 << 20;
constexpr size_t kDeepest = 8;

}  // namespace

ReadAhead::ReadAhead(std::unique_ptr<ByteSource> source, int64_t offset) : source_(std::move(source)), next_(offset) {}

void ReadAhead::start_reads() {
  while (under_way_.size() < depth_ && next_ < source_->size()) {
    const int64_t count = std::min(kPiece, source_->size() - next_);
    under_way_.push_back(std::async(std::launch::async, [source = source_, at = next_, count] {
      std::vector<char> bytes(static_cast<size_t>(count));
      source->read(at, bytes);
      return bytes;
    }));
    next_ += count;
  }
}

size_t ReadAhead::read(char* out, size_t size) {
  if (used_ == piece_.size()) {
    start_reads();
    if (under_way_.empty()) return 0;
    const bool waits = under_way_.front().wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    if (waits) depth_ = std::min(depth_ + 1, kDeepest);
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
