#include "titanium/remote/reading/read_ahead.h"

#include <algorithm>
#include <cstring>

namespace titanium::remote {
namespace {

constexpr int64_t kSmallest = 64 << 10, kLargest = 4 << 20;
constexpr int64_t kBehindEnd = 16 << 10;  // the first piece there; the next double up to the usual size
constexpr int64_t kDeepest = 8;
constexpr int64_t kPiecesInMemory = 4;  // at least

int64_t bytes_of_piece(int64_t memory) {
  return memory == 0 ? kLargest : std::clamp(memory / kPiecesInMemory, kSmallest, kLargest);
}

PiecesAhead::Sizes sizes_for(int64_t memory) {
  const int64_t bytes = bytes_of_piece(memory);
  const int64_t deepest = memory == 0 ? kDeepest : std::clamp(memory / bytes - 1, kPiecesInMemory - 1, kDeepest);
  return {.first = bytes, .largest = bytes, .depth = 2, .deepest = static_cast<size_t>(deepest)};
}

}  // namespace

std::vector<char> PiecesAhead::next(int64_t limit) {
  while (under_way_.size() < depth_ && next_ < limit) start(limit);
  if (under_way_.empty() && next_ < limit) start(limit);
  if (under_way_.empty()) return {};
  Piece piece = std::move(under_way_.front());
  under_way_.pop_front();
  const bool waits = piece.bytes.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  // While pieces still grow, that is enough.
  if (waits && !is_first_ && (depth_ == 0 || bytes_ == sizes_.largest)) depth_ = std::min(depth_ + 1, sizes_.deepest);
  is_first_ = false;
  std::vector<char> bytes;
  try {
    bytes = piece.bytes.get();
  } catch (...) {
    under_way_.clear();
    next_ = piece.begin;
    throw;
  }
  while (under_way_.size() < depth_ && next_ < limit) start(limit);
  return bytes;
}

// The memory is this thread's: what threads that soon end allocate stays in arenas of theirs.
void PiecesAhead::start(int64_t limit) {
  const int64_t count = std::min(bytes_, limit - next_);
  under_way_.push_back({next_, in_background([source = source_, at = next_,
                                              bytes = std::vector<char>(static_cast<size_t>(count))]() mutable {
                          source->read(at, bytes);
                          return std::move(bytes);
                        })});
  next_ += count;
  bytes_ = std::max(std::min(2 * bytes_, sizes_.largest), kSmallest);
}

ReadAhead::ReadAhead(std::unique_ptr<ByteSource> source, const ReadAheadPlace& place)
    : size_(source->size()),
      end_(std::min(place.end, size_)),
      piece_bytes_(bytes_of_piece(place.memory_bytes)),
      behind_end_(kBehindEnd),
      pieces_(std::move(source), place.offset, sizes_for(place.memory_bytes)) {}

size_t ReadAhead::read(char* out, size_t size) {
  if (used_ == piece_.size()) next_piece();
  const size_t count = std::min(size, piece_.size() - used_);
  std::memcpy(out, piece_.data() + used_, count);
  used_ += count;
  return count;
}

void ReadAhead::next_piece() {
  used_ = 0;
  piece_ = pieces_.next(end_);
  if (!piece_.empty()) return;
  piece_ = pieces_.next(std::min(pieces_.read_up_to() + behind_end_, size_));
  behind_end_ = std::min(behind_end_ * 2, piece_bytes_);
}

}  // namespace titanium::remote
