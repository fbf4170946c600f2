// Archives of WebDataset: the members that hold a text are records, in their order.
#include <charconv>

#include "titanium/base/error.h"
#include "titanium/data/format/formats.h"
#include "titanium/data/source_files.h"

namespace titanium::data {
namespace {

constexpr int64_t kTarBlock = 512;
constexpr size_t kPiece = size_t{1} << 20;

struct Member {
  std::string name;
  int64_t size = 0;
  char type = '0';
};

bool checksum_fits(std::string_view header) {
  int64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  }
  int64_t stored = -1;
  const size_t begin = header.find_first_not_of(' ', 148);
  std::from_chars(header.data() + std::min<size_t>(begin, 155), header.data() + 156, stored, 8);
  return sum == stored;
}

// Octal digits, or in base 256 behind a byte with the highest bit.
int64_t size_field(std::string_view field) {
  if ((static_cast<unsigned char>(field[0]) & 0x80U) != 0) {
    uint64_t size = 0;
    for (const char byte : field.substr(4)) size = size << 8U | static_cast<unsigned char>(byte);
    return static_cast<int64_t>(size & ((uint64_t{1} << 62U) - 1));
  }
  int64_t size = 0;
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  std::from_chars(field.data(), field.data() + field.size(), size, 8);
  return size;
}

std::string text_field(std::string_view field) { return std::string(field.substr(0, field.find('\0'))); }

// The value of `key` in the records "length key=value\n" of a pax header.
std::optional<std::string> pax_value(std::string_view records, std::string_view key) {
  const std::string wanted = fmt::format(" {}=", key);
  const size_t begin = records.find(wanted);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view value = records.substr(begin + wanted.size());
  return std::string(value.substr(0, value.find('\n')));
}

class TarReader : public BlockReader {
 public:
  TarReader(const SourceFile& file, const Anchor& start, const ReadOptions& options)
      : BlockReader(start, options),
        file_(file),
        ending_("." + (options.text_field == "text" ? std::string("txt") : options.text_field)),
        stream_(open_byte_stream(file.path, file.compression, start.offset)) {}

  std::shared_ptr<const Block> next() override {
    const auto block = begin_block(Content::kText, is_entrance() ? position_ : start_);
    while (!at_end_ && !is_full(*block, position_.offset - block->begin.offset)) {
      const auto member = next_member();
      if (!member) {
        at_end_ = true;
      } else if (member->type == '0' && has_ending(member->name)) {
        append(*block, content(member->size));
      } else {
        skip(member->size);
      }
    }
    block->bytes.shrink_to_fit();
    return block;
  }

  bool is_entrance() const override { return file_.compression == Compression::kNone; }

 private:
  // WebDataset's key ends at the first dot of the last part of the name; the rest says what the member is.
  bool has_ending(const std::string& name) const {
    const std::string base = name.substr(name.rfind('/') + 1);
    const size_t dot = base.find('.', 1);
    return dot != std::string::npos && base.substr(dot) == ending_;
  }

  std::optional<Member> next_member() {
    std::optional<std::string> long_name;
    std::optional<int64_t> long_size;
    for (;;) {
      std::string header(kTarBlock, '\0');
      if (!read(header.data(), header.size(), /*may_end=*/true)) return std::nullopt;
      if (header.find_first_not_of('\0') == std::string::npos) return std::nullopt;
      if (!checksum_fits(header))
        refuse(fmt::format("has no header of a member at byte {}", position_.offset - kTarBlock));
      const std::string_view view = header;
      const char type = header[156] == '\0' || header[156] == '7' ? '0' : header[156];
      const int64_t size = long_size.value_or(size_field(view.substr(124, 12)));
      if (type == 'L') {
        long_name = text_field(content(size));
      } else if (type == 'x') {
        const std::string records = content(size);
        long_name = pax_value(records, "path");
        if (const auto value = pax_value(records, "size")) long_size = std::atoll(value->c_str());
      } else {
        const std::string prefix = text_field(view.substr(345, 155));
        const std::string name = text_field(view.substr(0, 100));
        return Member{long_name.value_or(prefix.empty() ? name : prefix + "/" + name), size, type};
      }
    }
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(fmt::format("Data file {} {}: it is no archive of tar or damaged. Fetch or make it again.",
                            file_.path.string(), problem));
  }

  std::string content(int64_t size) {
    TI_CHECK(size >= 0 && size <= options_.max_record_bytes,
             "{}:{}: this record is longer than {} bytes, the most that one document may have. Split it.",
             file_.path.string(), position_.line, options_.max_record_bytes);
    std::string bytes;  // grows with what is really there
    while (static_cast<int64_t>(bytes.size()) < size) {
      const size_t begin = bytes.size(), count = std::min(static_cast<size_t>(size) - begin, kPiece);
      bytes.resize(begin + count);
      read(bytes.data() + begin, count, false);
    }
    skip_bytes(padding(size));
    return bytes;
  }

  void skip(int64_t size) {
    if (size < 0 || size > int64_t{1} << 50) refuse("has a member of an impossible size");
    skip_bytes(size + padding(size));
  }

  static int64_t padding(int64_t size) { return (kTarBlock - size % kTarBlock) % kTarBlock; }

  void skip_bytes(int64_t size) {
    if (file_.compression == Compression::kNone && size > int64_t{1} << 16) {
      if (position_.offset + size > file_.size) refuse("ends inside a member");
      position_.offset += size;
      stream_ = open_byte_stream(file_.path, file_.compression, position_.offset);
      return;
    }
    char buffer[4096];
    for (; size > 0; size -= std::min<int64_t>(size, sizeof(buffer)))
      read(buffer, static_cast<size_t>(std::min<int64_t>(size, sizeof(buffer))), false);
  }

  // False at the end of the file, where that may be.
  bool read(char* out, size_t size, bool may_end) {
    size_t done = 0;
    while (done < size) {
      const size_t count = stream_->read(out + done, size - done);
      if (count == 0) {
        if (may_end && done == 0) return false;
        refuse("ends inside a member");
      }
      done += count;
    }
    position_.offset += static_cast<int64_t>(size);
    return true;
  }

  const SourceFile& file_;
  std::string ending_;
  std::unique_ptr<ByteStream> stream_;
};

class TarArchives : public SourceFormat {
 public:
  std::string_view name() const override { return "an archive of tar"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".tar"); }
  bool has_content(std::string_view head) const override {
    return head.size() == kTarBlock && head.substr(257, 5) == "ustar";
  }
  bool may_be_compressed() const override { return true; }
  bool is_place(const SourceFile& file, const Anchor& anchor) const override {
    if (file.compression != Compression::kNone || anchor.offset % kTarBlock != 0) return false;
    if (anchor.offset + kTarBlock > file.size) return anchor.offset == file.size;
    std::string header(kTarBlock, '\0');
    open_byte_stream(file.path, file.compression, anchor.offset)->read(header.data(), header.size());
    return header.find_first_not_of('\0') == std::string::npos || checksum_fits(header);
  }
  std::unique_ptr<BlockReader> open(const SourceFile& file, const Anchor& start,
                                    const ReadOptions& options) const override {
    return std::make_unique<TarReader>(file, start, options);
  }
};

}  // namespace

const SourceFormat& tar_archives() {
  static const TarArchives format;
  return format;
}

}  // namespace titanium::data
