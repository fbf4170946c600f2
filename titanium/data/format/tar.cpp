// Archives of WebDataset: the members that hold a text are records, in their order, or all members of a key together.
#include "titanium/base/error.h"
#include "titanium/data/format/formats.h"
#include "titanium/data/format/tar_members.h"
#include "titanium/data/source_files.h"

namespace titanium::data {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

class TarReader : public BlockReader {
 public:
  TarReader(const SourceFile& file, const Anchor& start, const ReadOptions& options)
      : BlockReader(start, options), file_(file), at_(start.offset), stream_(open_stream()) {}

  bool is_entrance() const override { return file_.compression == Compression::kNone; }

 protected:
  std::shared_ptr<Block> begin(Content content) const {
    return begin_block(content, is_entrance() ? position_ : start_);
  }

  std::optional<TarMember> next_member() {
    return next_tar_member(
        {.read_header = [this](char* out, int64_t size) { return read(out, size, true); },
         .read_content = [this](int64_t size) { return content(size); },
         .refuse =
             [this](const std::string& problem) { refuse(fmt::format("{} at byte {}", problem, at_ - kTarBlock)); }});
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(fmt::format("Data file {} {}: it is no archive of tar or damaged. Fetch or make it again.",
                            file_.path.string(), problem));
  }

  // Reads `size` bytes of a member, of a record that has `before` bytes so far.
  std::string content(int64_t size, int64_t before = 0) {
    TI_CHECK(size >= 0 && size <= options_.max_record_bytes - before,
             "{}:{}: this record is longer than {} bytes, the most that one document may have. Split it.",
             file_.path.string(), position_.line, options_.max_record_bytes);
    std::string bytes;  // grows with what is really there
    while (static_cast<int64_t>(bytes.size()) < size) {
      const size_t begin = bytes.size(), count = std::min(static_cast<size_t>(size) - begin, kPiece);
      bytes.resize(begin + count);
      read(bytes.data() + begin, static_cast<int64_t>(count), false);
    }
    skip_bytes(tar_padding(size));
    return bytes;
  }

  void skip(int64_t size) {
    if (size < 0 || size > int64_t{1} << 50) refuse("has a member of an impossible size");
    skip_bytes(size + tar_padding(size));
  }

  int64_t at() const { return at_; }  // bytes of the archive that have been read or skipped

 private:
  std::unique_ptr<ByteStream> open_stream() const {
    return open_byte_stream(file_.path, file_.compression, {.offset = at_, .memory_bytes = options_.memory_bytes});
  }

  void skip_bytes(int64_t size) {
    if (file_.compression == Compression::kNone && size > int64_t{1} << 16) {
      if (at_ + size > file_.size) refuse("ends inside a member");
      at_ += size;
      stream_ = open_stream();
      return;
    }
    char buffer[4096];
    for (; size > 0; size -= std::min<int64_t>(size, sizeof(buffer)))
      read(buffer, std::min<int64_t>(size, sizeof(buffer)), false);
  }

  // False at the end of the file, where that may be.
  bool read(char* out, int64_t size, bool may_end) {
    int64_t done = 0;
    while (done < size) {
      const size_t count = stream_->read(out + done, static_cast<size_t>(size - done));
      if (count == 0) {
        if (may_end && done == 0) return false;
        refuse("ends inside a member");
      }
      done += static_cast<int64_t>(count);
    }
    at_ += size;
    return true;
  }

  const SourceFile& file_;
  int64_t at_;
  std::unique_ptr<ByteStream> stream_;
};

class TextMembers : public TarReader {
 public:
  TextMembers(const SourceFile& file, const Anchor& start, const ReadOptions& options)
      : TarReader(file, start, options),
        ending_("." + (options.text_field == "text" ? std::string("txt") : options.text_field)) {}

  std::shared_ptr<const Block> next() override {
    const auto block = begin(Content::kText);
    while (!at_end_ && !is_full(*block, position_.offset - block->begin.offset)) {
      const auto member = next_member();
      if (!member) {
        at_end_ = true;
      } else if (member->type == '0' && has_ending(member->name)) {
        append(*block, content(member->size));
      } else {
        skip(member->size);
      }
      position_.offset = at();
    }
    block->bytes.shrink_to_fit();
    return block;
  }

 private:
  bool has_ending(const std::string& name) const {
    const std::string base = name.substr(name.rfind('/') + 1);
    const size_t dot = base.find('.', 1);
    return dot != std::string::npos && base.substr(dot) == ending_;
  }

  std::string ending_;
};

// A record is what the members of one key take in the archive. Its end shows in the next member, which is kept.
class WholeSamples : public TarReader {
 public:
  using TarReader::TarReader;

  std::shared_ptr<const Block> next() override {
    const auto block = begin(Content::kSample);
    while (!at_end_ && !is_full(*block, position_.offset - block->begin.offset)) {
      if (!ahead_) ahead_ = next_part();
      if (!ahead_) {
        at_end_ = true;
      } else {
        append(*block, next_sample());
      }
      position_.offset = ahead_ ? ahead_->begin : at();
    }
    block->bytes.shrink_to_fit();
    return block;
  }

 private:
  struct Part {
    TarMember member;
    std::string key;
    int64_t begin = 0;  // of its headers
  };

  std::optional<Part> next_part() {
    for (;;) {
      const int64_t begin = at();
      auto member = next_member();
      if (!member) return std::nullopt;
      const auto name = member->type == '0' ? sample_name(member->name) : std::nullopt;
      if (name) return Part{.member = *std::move(member), .key = name->key, .begin = begin};
      skip(member->size);
    }
  }

  // The bytes of the sample that begins with `ahead_`; nothing of one that belongs to another rank.
  std::string next_sample() {
    const std::string key = ahead_->key;
    const bool owned = options_.ownership.owns(position_.record);
    std::string bytes;
    while (ahead_ && ahead_->key == key) {
      const int64_t size = ahead_->member.size;
      if (owned) {
        bytes += ahead_->member.header;
        bytes += content(size, std::ssize(bytes));
        bytes.append(static_cast<size_t>(tar_padding(size)), '\0');
      } else {
        skip(size);
      }
      ahead_ = next_part();
    }
    return bytes;
  }

  std::optional<Part> ahead_;
};

class TarArchives : public SourceFormat {
 public:
  std::string_view name() const override { return "an archive of tar"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".tar"); }
  bool has_content(std::string_view head) const override {
    return head.size() == kTarBlock && head.substr(257, 5) == "ustar";
  }
  bool may_be_compressed() const override { return true; }
  bool has_samples() const override { return true; }
  bool is_place(const SourceFile& file, const Anchor& anchor) const override {
    if (file.compression != Compression::kNone || anchor.offset % kTarBlock != 0) return false;
    if (anchor.offset + kTarBlock > file.size) return anchor.offset == file.size;
    std::string header(kTarBlock, '\0');
    open_byte_stream(file.path, file.compression, {.offset = anchor.offset})->read(header.data(), header.size());
    return header.find_first_not_of('\0') == std::string::npos || is_tar_header(header);
  }
  std::unique_ptr<BlockReader> open(const SourceFile& file, const Anchor& start,
                                    const ReadOptions& options) const override {
    if (options.whole_samples) return std::make_unique<WholeSamples>(file, start, options);
    return std::make_unique<TextMembers>(file, start, options);
  }
};

}  // namespace

const SourceFormat& tar_archives() {
  static const TarArchives format;
  return format;
}

}  // namespace titanium::data
