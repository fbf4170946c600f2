#include "titanium/data/format/token_reader.h"

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

class DocumentReader : public BlockReader {
 public:
  DocumentReader(std::unique_ptr<DocumentIndex> index, const Anchor& start, const ReadOptions& options)
      : BlockReader(start, options), index_(std::move(index)) {}

  std::shared_ptr<const Block> next() override {
    const auto block = begin_block(index_->content(), start_);
    block->token_bytes = index_->token_bytes();
    const int64_t left = index_->count() - position_.offset;
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
    const int64_t documents = std::clamp(record - position_.record, -position_.offset,
                                         std::max(index_->count() - position_.offset, int64_t{0}));
    position_.record += documents;
    position_.offset += documents;
    position_.line += documents;
  }

  bool covers(int64_t record) const override {
    return record >= start_.record && record - start_.record < index_->count() - start_.offset;
  }

  std::optional<int64_t> tokens() const override { return index_->tokens(); }

 private:
  std::unique_ptr<DocumentIndex> index_;
};

}  // namespace

std::unique_ptr<BlockReader> read_documents(std::unique_ptr<DocumentIndex> index, const Anchor& start,
                                            const ReadOptions& options) {
  return std::make_unique<DocumentReader>(std::move(index), start, options);
}

int64_t bytes_of_dtype(std::string_view dtype) {
  if (dtype == "uint16") return 2;
  return dtype == "int64" ? 8 : 4;
}

}  // namespace titanium::data
