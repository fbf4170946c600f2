// Rotary position embedding in place: a pair of elements of a head is a complex number that is multiplied by the
// table's entry i of the token's position, or by its conjugate (the backward). Pair i is (x[2i], x[2i+1]), or, with
// `halves`, (x[i], x[i + head_dim/2]).
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// The queries are [tokens, q_heads, head_dim] with q_row_stride elements from token to token, the keys likewise. Both
// may be parts of one fused buffer: k = q + q_heads * head_dim, the same stride. Either may have 0 heads. Token t is at
// position t % seq_len. One token has less than 2^31 elements. Any even head_dim; where rows and heads (with
// `halves`, also their halves) are 16-byte aligned, accesses are 128 bits wide. Pointers are device memory; work is
// queued on `stream` and nothing synchronises.
struct RopeArgs {
  ElementType type;
  void* q;
  void* k;
  int64_t q_row_stride;
  int64_t k_row_stride;
  int64_t q_heads;
  int64_t k_heads;
  int64_t head_dim;
  const float* table;  // complex64 [seq_len, head_dim / 2]
  int64_t tokens;
  int64_t seq_len;
  bool inverse;
  bool halves = false;
  // May be null. Otherwise raised to the largest magnitude of the rotated queries and keys, after rounding; NaN if
  // there is one. The caller has set them to 0.
  float* q_amax = nullptr;
  float* k_amax = nullptr;
};
void rope(const RopeArgs& args, GpuStream stream);

}  // namespace titanium::kernels
