// Documents inside the rows of a batch.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "titanium/ops/sequence_share.h"

namespace titanium::ops {

// Note [Documents]
// With block-causal attention a token sees only earlier tokens of its own document. A row of the batch starts and ends
// a document. `boundaries` holds the first token of every document, counted over the flattened batch, and the total at
// the end: [0, ..., B*S].
// Where a sequence is shared by ranks, the batch is this rank's rows, and every chunk starts and ends a document of
// `boundaries`. What a chunk's first document has in earlier chunks stands in `continued`.
struct Documents {
  std::vector<int32_t> boundaries;
  int64_t longest = 0;
  Tensor boundaries_on_device;  // int32; on the CPU undefined

  struct Continued {
    int64_t before = 0;  // tokens of the document in front of the chunk
    int64_t inside = 0;  // tokens of it in the chunk
  };
  std::vector<Continued> continued;  // of each chunk of each row
};

using DocumentsPtr = std::shared_ptr<const Documents>;  // null: the whole row is one document

// The documents of [B, S] tokens, or what this rank has of them. `starts` are their first tokens, ascending, counted
// over the flattened batch, the first token of each row among them. Copies to `device` without waiting.
DocumentsPtr make_documents(std::span<const int32_t> starts, int64_t rows, int64_t seq_len, Device device,
                            const SequenceShare& share = {});

// The documents of [rows, tokens] (null: each row is one) cut once more wherever a chunk of `chunk` tokens of the whole
// sequence starts: Note [Chunks are documents] in attention.cpp. With a share, `tokens` are those of this rank.
DocumentsPtr cut_documents(const DocumentsPtr& documents, int64_t chunk, int64_t rows, int64_t tokens, Device device,
                           const SequenceShare& share = {});

}  // namespace titanium::ops
