// Cross-entropy of logits and its gradient, which is written over the logits.
// Row t's loss is log(sum_v exp(logits[t][v])) - logits[t][label]; where the label is kIgnoredLabel, loss and gradient
// are 0. A label that names no column gives a loss that is not a number. Pointers are device memory; work is queued on
// `stream` and nothing synchronises; every sum has a fixed order. Any sizes (vocabulary < 2^31); aligned rows take the
// vector path.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

inline constexpr int64_t kIgnoredLabel = -100;

// Loss and gradient of whole rows in one kernel: the logits are read once and written once.
struct CrossEntropyArgs {
  ElementType type;
  void* logits;  // [rows, vocabulary]
  int64_t row_stride;
  const int64_t* labels;  // [rows]
  float* row_losses;      // [rows], written; not scaled
  bool write_gradient;    // logits = (softmax - onehot) * scale
  float scale;
  int64_t rows;
  int64_t vocabulary;
};
void cross_entropy(const CrossEntropyArgs& args, GpuStream stream);

// *loss += scale * sum of row_losses, in fp64.
struct SumLossesArgs {
  const float* row_losses;  // [rows]
  int64_t rows;
  double scale;
  double* loss;
};
void sum_losses(const SumLossesArgs& args, GpuStream stream);

// A shard that holds the columns first_column .. first_column + vocabulary - 1 of the whole rows; labels count whole
// rows. The ranks combine their statistics: the sum-exps are relative to each shard's own maximum,
//   max = max_i row_max_i,  log_sum_exp = max + log(sum_i row_sum_i * exp(row_max_i - max)),
//   row loss = log_sum_exp - sum_i target_logit_i,
// and each rank then writes its part of the gradient.
struct CrossEntropyShardArgs {
  ElementType type;
  const void* logits;  // [rows, vocabulary]
  int64_t row_stride;
  const int64_t* labels;
  int64_t first_column;
  float* row_max;       // [rows]
  float* row_sum;       // [rows], sum of exp(logit - row_max)
  float* target_logit;  // [rows], 0 where the label is ignored or in another shard
  int64_t rows;
  int64_t vocabulary;
};
void cross_entropy_statistics(const CrossEntropyShardArgs& args, GpuStream stream);

struct CrossEntropyGradientArgs {
  ElementType type;
  void* logits;  // [rows, vocabulary], overwritten: (exp(logit - log_sum_exp) - onehot) * scale
  int64_t row_stride;
  const int64_t* labels;
  int64_t first_column;
  const float* log_sum_exp;  // [rows], of the whole rows
  float scale;
  int64_t rows;
  int64_t vocabulary;
};
void cross_entropy_gradient(const CrossEntropyGradientArgs& args, GpuStream stream);

}  // namespace titanium::kernels
