// Tokens of Megatron, datatrove and llm.c, and arrays of nothing but tokens.
#include <charconv>

#include "titanium/base/error.h"
#include "titanium/data/file_bytes.h"
#include "titanium/data/format/formats.h"
#include "titanium/data/format/token_reader.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMegatronMagic{"MMIDIDX\x00\x00", 9};
constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr int32_t kLlmcUint16 = 20240520, kLlmcUint32 = 20240801;
constexpr int64_t kLlmcHeader = 256 * 4;
constexpr int64_t kArrayRecordTokens = 8192;  // arrays have no documents, so they are cut into records of this size

[[noreturn]] void refuse(const fs::path& path, const std::string& problem) {
  throw Error(fmt::format("Data file {} {}. Fetch or make it again.", path.string(), problem));
}

// One array of tokens that is cut into records of equal size.
class ArrayIndex : public DocumentIndex {
 public:
  ArrayIndex(std::unique_ptr<FileBytes> file, int64_t begin, int64_t tokens, int64_t token_bytes)
      : file_(std::move(file)), begin_(begin), tokens_(tokens), token_bytes_(token_bytes) {}

  int64_t count() const override { return (tokens_ + kArrayRecordTokens - 1) / kArrayRecordTokens; }
  int64_t token_bytes() const override { return token_bytes_; }
  std::optional<int64_t> tokens() const override { return tokens_; }
  void read(int64_t first, int64_t n, const std::function<bool(std::string_view)>& take) const override {
    for (int64_t i = first; i < first + n; ++i) {
      const int64_t token = i * kArrayRecordTokens;
      const int64_t count = std::min(kArrayRecordTokens, tokens_ - token);
      if (!take(file_->text(begin_ + token * token_bytes_, count * token_bytes_))) return;
    }
  }
  void expect(int64_t first, int64_t end) const override {
    const int64_t last = std::min(end * kArrayRecordTokens, tokens_);
    file_->expect(begin_ + first * kArrayRecordTokens * token_bytes_, begin_ + last * token_bytes_);
  }

 private:
  std::unique_ptr<FileBytes> file_;
  int64_t begin_;
  int64_t tokens_;
  int64_t token_bytes_;
};

// Ends of documents, counted in tokens.
class DatatroveIndex : public DocumentIndex {
 public:
  DatatroveIndex(const fs::path& path, int64_t window)
      : tokens_(path, Compression::kNone, window),
        ends_(fs::path(path.string() + ".index"), Compression::kNone, window) {
    if (ends_.size() == 0 || ends_.size() % 8 != 0) refuse(ends_.path(), "is not a list of document ends of 8 bytes");
    const auto total = ends_.number<int64_t>(ends_.size() - 8);
    token_bytes_ = total > 0 ? tokens_.size() / total : 2;
    if (total < 0 || (token_bytes_ != 2 && token_bytes_ != 4) || token_bytes_ * total != tokens_.size())
      refuse(path, fmt::format("has {} bytes, which is neither 2 nor 4 for each of the {} tokens of {}", tokens_.size(),
                               total, ends_.path().filename().string()));
  }

  int64_t count() const override { return ends_.size() / 8; }
  int64_t token_bytes() const override { return token_bytes_; }
  std::optional<int64_t> tokens() const override { return tokens_.size() / token_bytes_; }
  void read(int64_t first, int64_t n, const std::function<bool(std::string_view)>& take) const override {
    std::vector<int64_t> ends = ends_.numbers<int64_t>(8 * std::max<int64_t>(first - 1, 0), first > 0 ? n + 1 : n);
    if (first == 0) ends.insert(ends.begin(), 0);
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      if (ends[i] < 0 || ends[i + 1] < ends[i] || ends[i + 1] > tokens_.size() / token_bytes_)
        refuse(ends_.path(), fmt::format("says that document {} is tokens {} to {}, which cannot be",
                                         first + static_cast<int64_t>(i), ends[i], ends[i + 1]));
      if (!take(tokens_.text(ends[i] * token_bytes_, (ends[i + 1] - ends[i]) * token_bytes_))) return;
    }
  }
  void expect(int64_t first, int64_t end) const override {
    ends_.expect(8 * std::max<int64_t>(first - 1, 0), 8 * end);
    const int64_t begin = first > 0 ? ends_.number<int64_t>(8 * (first - 1)) : 0;
    tokens_.expect(begin * token_bytes_, ends_.number<int64_t>(8 * (end - 1)) * token_bytes_);
  }

 private:
  FileBytes tokens_;
  FileBytes ends_;
  int64_t token_bytes_ = 0;
};

fs::path megatron_tokens(const fs::path& index) { return fs::path(index).replace_extension(".bin"); }

// Megatron's header: magic, u64 version, u8 dtype, u64 sequences, u64 documents; then i32 lengths and i64 places of
// sequences, and the first sequence of each document and the end.
class MegatronIndex : public DocumentIndex {
 public:
  MegatronIndex(const fs::path& path, int64_t window)
      : index_(path, Compression::kNone, window), tokens_(megatron_tokens(path), Compression::kNone, window) {
    if (index_.size() < kLengths || index_.text(0, 9) != kMegatronMagic)
      refuse(path, "is not an index of Megatron: it does not begin with MMIDIDX");
    const auto version = index_.number<int64_t>(9);
    if (version != 1) refuse(path, fmt::format("is an index of version {}, and only version 1 is known", version));
    const auto dtype = index_.number<uint8_t>(17);
    token_bytes_ = dtype == 8 ? 2 : dtype == 4 ? 4 : dtype == 5 ? 8 : 0;
    if (token_bytes_ == 0)
      refuse(path,
             fmt::format("has tokens of Megatron's type {}, and only 4 (int32), 5 (int64) and 8 (uint16) are known",
                         dtype));
    sequences_ = index_.number<int64_t>(18);
    const auto boundaries = index_.number<int64_t>(26);
    const int64_t most = index_.size() / 8;
    if (sequences_ < 0 || boundaries < 1 || sequences_ > most || boundaries > most ||
        index_.size() != kLengths + 12 * sequences_ + 8 * boundaries)
      refuse(path, fmt::format("has {} bytes, which do not fit {} sequences and {} bounds of documents", index_.size(),
                               sequences_, boundaries));
    documents_ = boundaries - 1;
  }

  int64_t count() const override { return documents_; }
  int64_t token_bytes() const override { return token_bytes_; }
  std::optional<int64_t> tokens() const override { return tokens_.size() / token_bytes_; }
  void read(int64_t first, int64_t n, const std::function<bool(std::string_view)>& take) const override {
    const auto bounds = index_.numbers<int64_t>(kLengths + 12 * sequences_ + 8 * first, n + 1);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      if (bounds[i] < 0 || bounds[i + 1] < bounds[i] || bounds[i + 1] > sequences_)
        refuse(index_.path(), fmt::format("says that document {} is sequences {} to {}, which cannot be",
                                          first + static_cast<int64_t>(i), bounds[i], bounds[i + 1]));
      if (!take(document(bounds[i], bounds[i + 1] - bounds[i]))) return;
    }
  }
  void expect(int64_t first, int64_t end) const override {
    const int64_t bounds = kLengths + 12 * sequences_, places = kLengths + 4 * sequences_;
    const auto begins = index_.number<int64_t>(bounds + 8 * first), ends = index_.number<int64_t>(bounds + 8 * end);
    if (begins < 0 || ends <= begins || ends > sequences_) return;  // reading says what is wrong
    index_.expect(bounds + 8 * first, bounds + 8 * (end + 1));
    index_.expect(kLengths + 4 * begins, kLengths + 4 * ends);
    index_.expect(places + 8 * begins, places + 8 * ends);
    const auto last = index_.number<int64_t>(places + 8 * (ends - 1));
    const int64_t size = int64_t{index_.number<int32_t>(kLengths + 4 * (ends - 1))} * token_bytes_;
    tokens_.expect(index_.number<int64_t>(places + 8 * begins), last + size);
  }

 private:
  static constexpr int64_t kLengths = 34;

  std::string document(int64_t sequence, int64_t count) const {
    const auto lengths = index_.numbers<int32_t>(kLengths + 4 * sequence, count);
    const auto places = index_.numbers<int64_t>(kLengths + 4 * sequences_ + 8 * sequence, count);
    std::string bytes;
    for (size_t i = 0; i < lengths.size(); ++i) {
      bytes += tokens_.text(places[i], int64_t{lengths[i]} * token_bytes_);
      if (static_cast<int64_t>(bytes.size()) > tokens_.size())
        refuse(index_.path(),
               fmt::format("has a document of {} sequences that is longer than all tokens together", count));
    }
    return bytes;
  }

  FileBytes index_;
  FileBytes tokens_;
  int64_t token_bytes_ = 0;
  int64_t sequences_ = 0;
  int64_t documents_ = 0;
};

class TokenFormat : public IndexedFormat {
 public:
  bool has_only_tokens() const override { return true; }
};

class MegatronFiles : public TokenFormat {
 public:
  std::string_view name() const override { return "an index of Megatron"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".idx"); }
  bool has_content(std::string_view head) const override { return head.starts_with(kMegatronMagic); }
  std::optional<fs::path> companion(const fs::path& path) const override { return megatron_tokens(path); }

 protected:
  std::unique_ptr<DocumentIndex> index_of(const SourceFile& file, const ReadOptions& options) const override {
    return std::make_unique<MegatronIndex>(file.path, largest_window(options));
  }
};

class DatatroveFiles : public TokenFormat {
 public:
  std::string_view name() const override { return "tokens of datatrove"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".ds"); }
  std::optional<fs::path> companion(const fs::path& path) const override { return path.string() + ".index"; }

 protected:
  std::unique_ptr<DocumentIndex> index_of(const SourceFile& file, const ReadOptions& options) const override {
    return std::make_unique<DatatroveIndex>(file.path, largest_window(options));
  }
};

// The array of a .npy file: dtype and place from its header, a Python literal.
std::unique_ptr<DocumentIndex> open_numpy(std::unique_ptr<FileBytes> file) {
  const fs::path path = file->path();
  const bool long_header = file->number<uint8_t>(6) > 1;
  const int64_t size = long_header ? int64_t{file->number<uint32_t>(8)} : int64_t{file->number<uint16_t>(8)};
  const int64_t begin = size + (long_header ? 12 : 10);
  const std::string header = file->text(0, begin);
  int64_t width = 0;
  for (const auto& [dtype, bytes] : {std::pair{"'<u2'", 2}, {"'<i4'", 4}, {"'<u4'", 4}, {"'<i8'", 8}, {"'<u8'", 8}}) {
    if (header.find(dtype) != std::string::npos) width = bytes;
  }
  if (width == 0) refuse(path, "is an array of numpy of another type than uint16, int32, uint32, int64 or uint64");
  const int64_t tokens = (file->size() - begin) / width;
  return std::make_unique<ArrayIndex>(std::move(file), begin, tokens, width);
}

std::unique_ptr<DocumentIndex> open_array(const fs::path& path, const ReadOptions& options) {
  auto file = std::make_unique<FileBytes>(path, Compression::kNone, largest_window(options));
  const std::string head = file->text(0, std::min<int64_t>(file->size(), 16));
  if (head.starts_with(kNumpyMagic) && head.size() >= 12) return open_numpy(std::move(file));
  const int32_t magic = head.size() >= 12 ? file->number<int32_t>(0) : 0;
  if (magic == kLlmcUint16 || magic == kLlmcUint32) {
    const int64_t width = magic == kLlmcUint16 ? 2 : 4;
    const int64_t tokens = file->number<int32_t>(8);
    if (tokens < 0 || file->size() != kLlmcHeader + tokens * width)
      refuse(path, fmt::format("is a file of llm.c whose header names {} tokens, which its {} bytes do not fit", tokens,
                               file->size()));
    return std::make_unique<ArrayIndex>(std::move(file), kLlmcHeader, tokens, width);
  }
  const int64_t width = bytes_of_dtype(options.token_dtype);
  if (file->size() % width != 0)
    throw Error(
        fmt::format("Data file {} has {} bytes, which is no multiple of the {} bytes of a token. Set "
                    "training.token_dtype to the type of its tokens.",
                    path.string(), file->size(), width));
  const int64_t tokens = file->size() / width;
  return std::make_unique<ArrayIndex>(std::move(file), 0, tokens, width);
}

class TokenArrays : public TokenFormat {
 public:
  std::string_view name() const override { return "an array of tokens"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".bin") || name.ends_with(".npy"); }
  bool has_content(std::string_view head) const override {
    for (const std::string_view magic : {std::string_view("\x88\xd8\x34\x01"), std::string_view("\xa1\xd9\x34\x01")}) {
      if (head.starts_with(magic)) return true;
    }
    return head.starts_with(kNumpyMagic);
  }

 protected:
  std::unique_ptr<DocumentIndex> index_of(const SourceFile& file, const ReadOptions& options) const override {
    return open_array(file.path, options);
  }
};

}  // namespace

const SourceFormat& megatron_files() {
  static const MegatronFiles format;
  return format;
}

const SourceFormat& datatrove_files() {
  static const DatatroveFiles format;
  return format;
}

const SourceFormat& token_arrays() {
  static const TokenArrays format;
  return format;
}

}  // namespace titanium::data
