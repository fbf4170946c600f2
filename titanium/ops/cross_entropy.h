// Cross-entropy of a chunk of logits, with its gradient. For operators that record a larger node.
#pragma once

#include "titanium/ops/row_exchange.h"

namespace titanium::ops {

inline constexpr int64_t kIgnoreIndex = -100;  // labels with this value do not count

struct CrossEntropyArgs {
  double scale;
  bool with_grad;
  int64_t first_column = 0;  // of these logits in the whole vocabulary
  RowExchange& exchange = all_rows_here();
  bool loss_parallel = true;  // with several ranks: exchange maxima and sums of the logits, or the logits themselves
};

// Adds scale * sum over tokens of -log softmax(logits)[label] to `loss`, an fp64 scalar beside the logits, and returns
// the gradient of the logits in their dtype (undefined without with_grad). Takes the logits over: the gradient may lie
// in their memory. The logits are contiguous; labels count columns of the whole vocabulary.
Tensor cross_entropy(const Tensor& logits_TV, const Tensor& labels_T, const CrossEntropyArgs& args, Tensor& loss);

// Tokens of a chunk of logits of x W^T, for a whole vocabulary of so many columns and a W of that dtype:
// few enough that the logits are small against everything else, and enough for efficient products.
int64_t cross_entropy_chunk(const Tensor& x_TD, int64_t vocabulary, Dtype weight);
int64_t cross_entropy_chunk_on_gpu(int64_t vocabulary, int64_t weight_element);  // with our kernels

}  // namespace titanium::ops
