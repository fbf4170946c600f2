// JSON lines, and text files, each of which is one record.
#include <cstring>
#include <limits>
#include <optional>

#include "titanium/base/error.h"
#include "titanium/data/format/formats.h"
#include "titanium/data/source_files.h"
#include "titanium/remote/reading/byte_source.h"

namespace titanium::data {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
constexpr int64_t kBehindPart = 4 << 10;  // read with a part, because its last line goes on there

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

// A text file is one line that ends with the file. A line belongs to the part in which it begins.
class LineReader : public BlockReader {
 public:
  LineReader(const SourceFile& file, const Anchor& start, const ReadOptions& options, Content content)
      : BlockReader(start, options),
        file_(file),
        content_(content),
        part_end_(file.part.end > 0 ? file.part.end : std::numeric_limits<int64_t>::max()),
        buffer_(kReadBytes) {
    const bool cuts_a_line = start.offset == 0 && file.part.begin > 0;
    if (cuts_a_line) position_.offset = file.part.begin - 1;  // where a line end would make the part begin with a line
    const int64_t read_end = file.part.end > 0 ? part_end_ + kBehindPart : part_end_;
    stream_ = open_byte_stream(file.path, file.compression,
                               {.offset = position_.offset, .end = read_end, .memory_bytes = options.memory_bytes});
    if (cuts_a_line) skip_cut_line();
  }

  std::shared_ptr<const Block> next() override {
    const auto block = begin_block(content_, is_entrance() ? position_ : start_);
    while (position_.offset < part_end_ && !is_full(*block, position_.offset - block->begin.offset)) {
      const auto line = read_line();
      if (!line) break;
      if (is_blank(*line)) {
        ++position_.line;
      } else {
        append(*block, *line);
      }
    }
    at_end_ |= position_.offset >= part_end_;
    block->bytes.shrink_to_fit();
    return block;
  }

  bool is_entrance() const override { return content_ == Content::kJson && file_.compression == Compression::kNone; }

 private:
  std::optional<std::string_view> read_line() {
    size_t scanned = 0;  // bytes after begin_ that hold no line end
    for (;;) {
      const char* line = buffer_.data() + begin_;
      const size_t available = end_ - begin_;
      const void* newline = nullptr;
      if (content_ == Content::kJson) newline = std::memchr(line + scanned, '\n', available - scanned);
      if (newline != nullptr) {
        const size_t size = static_cast<const char*>(newline) - line;
        begin_ += size + 1;
        position_.offset += static_cast<int64_t>(size) + 1;
        return std::string_view(line, size);
      }
      TI_CHECK(static_cast<int64_t>(available) <= options_.max_record_bytes,
               "{}: this record is longer than {} bytes, the most that one document may have. Split it.",
               place_of(file_, position_.line), options_.max_record_bytes);
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

  // What belongs to the part before; none of it is kept, however long it is.
  void skip_cut_line() {
    while (position_.offset < part_end_) {
      if (begin_ == end_ && !refill()) return;
      const char* bytes = buffer_.data() + begin_;
      const void* newline = std::memchr(bytes, '\n', end_ - begin_);
      const size_t size = newline != nullptr ? static_cast<const char*>(newline) - bytes + 1 : end_ - begin_;
      begin_ += size;
      position_.offset += static_cast<int64_t>(size);
      if (newline != nullptr) return;
    }
  }

  bool refill() {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
    const int64_t left = std::max<int64_t>(part_end_ - position_.offset - static_cast<int64_t>(end_), 0);
    const int64_t room = static_cast<int64_t>(buffer_.size() - end_);
    const int64_t wanted = left < room ? std::min(left + kBehindPart, room) : room;
    const size_t count = stream_->read(buffer_.data() + end_, static_cast<size_t>(wanted));
    end_ += count;
    return count > 0;
  }

  const SourceFile& file_;
  Content content_;
  const int64_t part_end_;
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // unread bytes are [begin_, end_) of buffer_
  size_t end_ = 0;
};

class JsonLines : public SourceFormat {
 public:
  std::string_view name() const override { return "JSON lines"; }
  bool has_name(std::string_view name) const override {
    return name.ends_with(".jsonl") || name.ends_with(".json") || name.ends_with(".ndjson");
  }
  bool may_be_compressed() const override { return true; }
  std::optional<std::vector<FilePart>> parts(const SourceFile& file, int64_t bytes,
                                             const ReadOptions& /*options*/) const override {
    if (file.compression != Compression::kNone) return std::nullopt;
    std::vector<FilePart> parts;
    for (int64_t begin = 0; begin < file.size; begin += bytes) {
      const int64_t end = std::min(begin + bytes, file.size);
      parts.push_back({.begin = begin,
                       .end = end < file.size ? end : 0,
                       .first_line = begin == 0 ? 1 : 0,
                       .bytes = end - begin,
                       .records = -1});
    }
    return parts;
  }
  bool opens_for_parts() const override { return false; }
  bool is_place(const SourceFile& file, const Anchor& anchor) const override {
    const bool inside = anchor.offset < file.size && file.part.is_inside(anchor.offset);
    if (file.compression != Compression::kNone || !inside) return false;
    char before = 0;
    remote::open_bytes(file.path.string())->read(anchor.offset - 1, {&before, 1});
    return before == '\n';
  }
  std::unique_ptr<BlockReader> open(const SourceFile& file, const Anchor& start,
                                    const ReadOptions& options) const override {
    return std::make_unique<LineReader>(file, start, options, Content::kJson);
  }
};

class TextFiles : public SourceFormat {
 public:
  std::string_view name() const override { return "text"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".txt"); }
  bool may_be_compressed() const override { return true; }
  bool is_place(const SourceFile&, const Anchor&) const override { return false; }
  std::unique_ptr<BlockReader> open(const SourceFile& file, const Anchor& start,
                                    const ReadOptions& options) const override {
    return std::make_unique<LineReader>(file, start, options, Content::kText);
  }
};

}  // namespace

const SourceFormat& json_lines() {
  static const JsonLines format;
  return format;
}

const SourceFormat& text_files() {
  static const TextFiles format;
  return format;
}

}  // namespace titanium::data
