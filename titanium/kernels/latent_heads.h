// Heads of latent attention: between what the last projections give and what attention takes. Keys are the first
// columns of `kv` and then a rotated part that all heads share; values are the last columns of `kv`.
//
// All arrays are contiguous device memory, 16-byte aligned; nope_dim, rope_dim and value_dim are multiples of 16 bytes.
// Token t is at position t % seq_len; pairs are neighbours, as in rope.h. Work is queued on `stream` and nothing
// synchronises.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

struct LatentHeadsArgs {
  ElementType type;
  void* q;             // [tokens, heads, nope_dim + rope_dim]
  void* k;             // as q
  void* v;             // [tokens, heads, value_dim]
  void* kv;            // [tokens, heads, nope_dim + value_dim]
  void* shared;        // [tokens, rope_dim]
  const float* table;  // complex64 [seq_len, rope_dim / 2]
  int64_t tokens;
  int64_t seq_len;
  int64_t heads;
  int64_t nope_dim;
  int64_t rope_dim;  // at most 16 bytes for each of 256 threads
  int64_t value_dim;
};

// Rotates the last columns of q in place, and makes k and v of kv and shared.
void latent_heads_forward(const LatentHeadsArgs& args, GpuStream stream);

// q, k and v are gradients: rotates those of q back, and makes the gradients of kv and shared, the latter as a sum over
// heads in fp32, in a fixed order.
void latent_heads_backward(const LatentHeadsArgs& args, GpuStream stream);

}  // namespace titanium::kernels
