#include "titanium/data/format/token_reader.h"

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

class DocumentReader : public BlockReader {
 public:
  DocumentReader(std::unique_ptr<DocumentIndex> index, const FilePart& part, const Anchor& start,
                 const ReadOptions& options)
      : BlockReader(start, options),
        index_(std::move(index)),
        first_(std::max(start.offset, part.begin)),
        end_(part.end > 0 ? std::min(part.end, index_->count()) : index_->count()) {
    position_.offset = first_;
    if (start.offset < part.begin) position_.line = part.first_line;
    if (part.end > 0 && first_ < end_) index_->expect(first_, end_);
  }

  std::shared_ptr<const Block> next() override {
    const auto block = begin_block(index_->content(), start_);
    block->token_bytes = index_->token_bytes();
    const int64_t left = end_ - position_.offset;
    if (left <= 0) at_end_ = true;
    if (left <= 0) return block;
    int64_t bytes = 0;
    index_->read(position_.offset, std::min(left, options_.block_records), [&](std::string_view document) {
      append(*block, document);
      ++position_.offset;
      bytes += static_cast<int64_t>(document.size());
      return !is_full(*block, bytes);
    });
    block->bytes.shrink_to_fit();
    return block;
  }

  void skip_towards(int64_t record) override {
    const int64_t documents =
        std::clamp(record - position_.record, first_ - position_.offset, std::max(end_ - position_.offset, int64_t{0}));
    position_.record += documents;
    position_.offset += documents;
    position_.line += documents;
  }

  bool covers(int64_t record) const override {
    return record >= start_.record && record - start_.record < end_ - first_;
  }

  std::optional<int64_t> tokens() const override { return index_->tokens(); }

 private:
  std::unique_ptr<DocumentIndex> index_;
  const int64_t first_;  // documents [first_, end_) are read
  const int64_t end_;
};

}  // namespace

// Parts have equal numbers of documents: to find their bytes would mean reading the index.
std::optional<std::vector<FilePart>> IndexedFormat::parts(const SourceFile& file, int64_t bytes,
                                                          const ReadOptions& options) const {
  if (file.compression != Compression::kNone) return std::nullopt;
  const int64_t count = index_of(file, options)->count();
  const double share = static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(file.size, 1));
  const auto documents = std::clamp<int64_t>(static_cast<int64_t>(share * static_cast<double>(count)), 1, count + 1);
  std::vector<FilePart> parts;
  for (int64_t begin = 0; begin < count; begin += documents) {
    const int64_t records = std::min(documents, count - begin);
    parts.push_back({.begin = begin,
                     .end = begin + records,
                     .first_line = begin + 1,
                     .bytes = static_cast<int64_t>(static_cast<double>(file.size) * static_cast<double>(records) /
                                                   static_cast<double>(count)),
                     .records = records});
  }
  return parts;
}

std::unique_ptr<BlockReader> IndexedFormat::open(const SourceFile& file, const Anchor& start,
                                                 const ReadOptions& options) const {
  return std::make_unique<DocumentReader>(index_of(file, options), file.part, start, options);
}

int64_t bytes_of_dtype(std::string_view dtype) {
  if (dtype == "uint16") return 2;
  return dtype == "int64" ? 8 : 4;
}

}  // namespace titanium::data
