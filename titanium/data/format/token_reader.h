// Documents that an index finds by number: tokens that were made elsewhere, and samples of MDS.
#pragma once

#include <memory>

#include "titanium/data/block_reader.h"
#include "titanium/data/source_files.h"

namespace titanium::data {

// Documents of one file. Reads nothing but what it is asked for.
class DocumentIndex {
 public:
  virtual ~DocumentIndex() = default;
  virtual int64_t count() const = 0;
  // Calls `take` with the bytes of documents [first, first + n), in order, until it returns false.
  virtual void read(int64_t first, int64_t n, const std::function<bool(std::string_view)>& take) const = 0;
  // Documents [first, end), at least one, will be read from front to back, and those after them will not be.
  virtual void expect(int64_t first, int64_t end) const = 0;
  virtual Content content() const { return Content::kTokens; }
  virtual int64_t token_bytes() const = 0;
  virtual std::optional<int64_t> tokens() const { return std::nullopt; }  // of all documents, where known
};

// A format whose files have an index. Anchor::offset is the number of the document in its file.
class IndexedFormat : public SourceFormat {
 public:
  bool is_indexed() const override { return true; }
  bool is_place(const SourceFile&, const Anchor&) const override { return false; }  // readers skip from the beginning
  std::optional<std::vector<FilePart>> parts(const SourceFile& file, int64_t bytes,
                                             const ReadOptions& options) const override;
  std::unique_ptr<BlockReader> open(const SourceFile& file, const Anchor& start,
                                    const ReadOptions& options) const override;

 protected:
  virtual std::unique_ptr<DocumentIndex> index_of(const SourceFile& file, const ReadOptions& options) const = 0;
};

// Bytes of one token of a dtype as training.token_dtype has it.
int64_t bytes_of_dtype(std::string_view dtype);

}  // namespace titanium::data
