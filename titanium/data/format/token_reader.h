// Documents of tokens that were made elsewhere, found by number through an index.
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
  virtual Content content() const { return Content::kTokens; }
  virtual int64_t token_bytes() const = 0;
  virtual std::optional<int64_t> tokens() const { return std::nullopt; }  // of all documents, where known
};

// Blocks of an index. Anchor::offset is the number of the document in its file.
std::unique_ptr<BlockReader> read_documents(std::unique_ptr<DocumentIndex> index, const Anchor& start,
                                            const ReadOptions& options);

// Bytes of one token of a dtype as training.token_dtype has it.
int64_t bytes_of_dtype(std::string_view dtype);

}  // namespace titanium::data
