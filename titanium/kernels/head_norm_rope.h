// The norms of the heads of queries and keys and the rotation that follows, in one pass; and the way back. A head x of
// head_dim elements becomes rotated(x * rstd * weight) with rstd = 1 / sqrt(mean(x^2) + eps). Pair i of a head is
// (x[i], x[i + head_dim/2]), or (x[2i], x[2i + 1]) where neighbours are pairs, as in rope.h. Results are rounded once.
// Pointers are device memory; work is queued on `stream` and nothing synchronises.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// Where the heads of a token begin: elements from one token to the next, and from one sequence of seq_len tokens to the
// next; both must be multiples of 16 bytes. 0 for both: the tokens lie one after another.
struct HeadStrides {
  int64_t token = 0;
  int64_t sequence = 0;
};

// Queries are [tokens, heads of q, head_dim], keys likewise; there is at least one head of each, and the heads of a
// token lie one after another. Token t is at position t % seq_len. A row is one head of one token.
struct HeadNormRopeForwardArgs {
  struct Heads {
    const void* x;
    const void* weight;  // [head_dim]
    void* y;             // may be x
    float* rstd;         // [rows], for the backward
    int64_t count;       // of a token
    HeadStrides x_strides = {}, y_strides = {};
  };
  ElementType type;  // of x and y
  ElementType weight_type;
  Heads q;
  Heads k;
  int64_t head_dim;
  const float* table;  // complex64 [seq_len, head_dim / 2]
  int64_t tokens;
  int64_t seq_len;
  float eps;
  bool neighbours = false;  // are pairs
};
void head_norm_rope_forward(const HeadNormRopeForwardArgs& args, GpuStream stream);

// dx = gradient of x, and dweight [+]= gradient of the weight, without atomics: each block sums the rows that it
// treats, and a second kernel sums the blocks' parts in order. The same bits in every run on one kind of GPU.
struct HeadNormRopeBackwardArgs {
  struct Heads {
    const void* dy;
    const void* x;
    const float* rstd;        // [rows]
    const void* weight;       // [head_dim]
    void* dx;                 // may be dy or x
    void* dweight;            // [head_dim]
    bool accumulate_dweight;  // add to dweight instead of overwriting it
    int64_t count;            // of a token
    // May be null. Otherwise raised to the largest magnitude of dx, after rounding; NaN if there is one. The caller has
    // set it to 0.
    float* amax = nullptr;
    HeadStrides dy_strides = {}, x_strides = {}, dx_strides = {};
  };
  ElementType type;  // of dy, x and dx
  ElementType weight_type;
  ElementType dweight_type;
  Heads q;
  Heads k;
  int64_t head_dim;
  const float* table;  // complex64 [seq_len, head_dim / 2]
  float* scratch;      // of head_norm_rope_scratch_bytes
  int64_t tokens;
  int64_t seq_len;
  bool neighbours = false;  // are pairs
};
void head_norm_rope_backward(const HeadNormRopeBackwardArgs& args, GpuStream stream);
// Depends on the current device.
int64_t head_norm_rope_scratch_bytes(const HeadNormRopeBackwardArgs& args);

// Whether there are kernels for heads of this size: 64, 128 and 256 elements in bfloat16, 32, 64 and 128 in fp32. Else
// rms_norm.h and rope.h do the same in two passes.
constexpr bool has_head_norm_rope(ElementType type, int64_t head_dim) {
  const int64_t bytes = head_dim * element_size(type);
  return bytes == 128 || bytes == 256 || bytes == 512;
}

// The kernels read and write 128 bits at a time: x, y, dy, dx and the table must begin at such addresses.
inline bool head_norm_rope_takes(const void* array) { return reinterpret_cast<uintptr_t>(array) % 16 == 0; }

}  // namespace titanium::kernels
