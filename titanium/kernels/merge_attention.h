// Joins two results of attention of the same queries over different keys: the outputs are weighted by their shares of
// the sum of exponentials. B batch, S queries, H heads, E head dim.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// Attention over some keys. Strides are in elements; neighbouring queries of `out` are H * E elements apart, those of
// `log_sum_exp` one.
struct AttentionResult {
  ElementType type;    // of out
  void* out;           // [B, S, H, E]
  float* log_sum_exp;  // [B, H, S]
  int64_t out_batch_stride;
  int64_t sum_batch_stride;
  int64_t sum_head_stride;
};

// whole = whole and part together, in place; computed in fp32, rounded once. Pointers are device memory; work is queued
// on `stream` and nothing synchronises. Any sizes; a head dim that is a multiple of 8 with aligned pointers and strides
// takes the vector path.
struct MergeAttentionArgs {
  AttentionResult whole;
  AttentionResult part;
  int64_t batch;
  int64_t queries;
  int64_t heads;
  int64_t head_dim;
};
void merge_attention(const MergeAttentionArgs& args, GpuStream stream);

}  // namespace titanium::kernels
