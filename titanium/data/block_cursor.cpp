#include "titanium/data/block_cursor.h"

#include <cstring>

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

constexpr int64_t kBlockRecords = 1024;
constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr size_t kReadBytes = size_t{256} << 10;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

}  // namespace

BlockCursor::BlockCursor(const SourceFile& file, const Anchor& start, Ownership ownership, int64_t max_record_bytes)
    : file_(file),
      ownership_(ownership),
      max_record_bytes_(max_record_bytes),
      stream_(open_byte_stream(file.path, file.compression, start.offset)),
      start_(start),
      position_(start),
      buffer_(kReadBytes) {}

std::shared_ptr<const Block> BlockCursor::next() {
  auto block = std::make_shared<Block>();
  block->begin = position_;
  block->entrance = file_.seekable() ? position_ : start_;
  while (block->count < kBlockRecords && position_.offset - block->begin.offset < kBlockBytes) {
    const auto line = read_line();
    if (!line) break;
    if (!is_blank(*line)) {
      if (ownership_.owns(position_.record)) {
        block->entries.push_back({block->bytes.size(), line->size(), position_.line});
        block->bytes.append(*line);
      }
      ++position_.record;
      ++block->count;
    }
    ++position_.line;
  }
  block->bytes.shrink_to_fit();
  return block;
}

std::optional<std::string_view> BlockCursor::read_line() {
  size_t scanned = 0;  // bytes after begin_ that hold no line end
  for (;;) {
    const char* line = buffer_.data() + begin_;
    const size_t available = end_ - begin_;
    const void* newline = nullptr;
    if (file_.format == RecordFormat::kJsonLines) newline = std::memchr(line + scanned, '\n', available - scanned);
    if (newline != nullptr) {
      const size_t size = static_cast<const char*>(newline) - line;
      begin_ += size + 1;
      position_.offset += static_cast<int64_t>(size) + 1;
      return std::string_view(line, size);
    }
    TI_CHECK(static_cast<int64_t>(available) <= max_record_bytes_,
             "{}:{}: this record is longer than {} bytes, the most that one document may have. Split it.",
             file_.path.string(), position_.line, max_record_bytes_);
    scanned = available;
    if (refill()) continue;
    if (available == 0) {
      at_end_ = true;
      return std::nullopt;
    }
    begin_ = end_;  // refill() may have moved the bytes: `line` is stale
    position_.offset += static_cast<int64_t>(available);
    return std::string_view(buffer_.data() + end_ - available, available);
  }
}

bool BlockCursor::refill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  const size_t count = stream_->read(buffer_.data() + end_, buffer_.size() - end_);
  end_ += count;
  return count > 0;
}

}  // namespace titanium::data
