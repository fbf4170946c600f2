// What a language model reads.
#pragma once

#include "titanium/ops/attention/documents.h"

namespace titanium::models {

// Token ids [B, S] on the model's device, with the documents in them if the model's attention stays inside documents,
// and with a position for each token where these are not 0 .. of the whole sequence (int64). With context parallelism S
// is this rank's share of the sequence.
struct TokenBatch {
  Tensor tokens_BS;
  ops::DocumentsPtr documents;
  Tensor positions_BS = {};
};

}  // namespace titanium::models
