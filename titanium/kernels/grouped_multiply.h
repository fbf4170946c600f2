// Grouped GEMMs: products of the rows of many experts with their stacked matrices [E, out, in], in bfloat16 with sums
// in fp32, on the tensor cores of compute capability 9.0. Rows are sorted by expert; those of expert e end at ends[e],
// which only the device knows. Arrays have room for `rows` rows; those beyond the last end are neither read into a
// result nor written.
//
// Pointers are device memory, contiguous, 16-byte aligned; work is queued on `stream` and nothing synchronises. An
// Error is thrown, before anything is queued, if the driver cannot map an array. The order of every sum depends on
// sizes and ends alone.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// Whether this GPU has such tensor cores.
bool has_grouped_multiply();
// Whether they take matrices of this size.
constexpr bool grouped_multiply_takes(int64_t out, int64_t in) { return out % 64 == 0 && in % 64 == 0; }

struct ExpertGroups {
  const int32_t* ends;  // [num_experts]
  int64_t num_experts;
  int64_t rows;
  int64_t out;
  int64_t in;
};

// y = x W^T.
struct GroupedForwardArgs {
  ExpertGroups groups;
  const void* x;       // [rows, in]
  const void* weight;  // [E, out, in]
  void* y;             // [rows, out]
};
void grouped_forward(const GroupedForwardArgs& args, GpuStream stream);

// gate = x G^T, up = x U^T, product = silu(gate) * up, the last from the rounded values, as swiglu_forward does.
// `out` is a multiple of 128.
struct GroupedSwigluArgs {
  ExpertGroups groups;
  const void* x;
  const void* gate_weight;
  const void* up_weight;
  void* gate;
  void* up;
  void* product;
};
void grouped_swiglu(const GroupedSwigluArgs& args, GpuStream stream);

// dx = dy W [+ dy2 W2], rounded once.
struct GroupedInputGradArgs {
  ExpertGroups groups;
  const void* dy;       // [rows, out]
  const void* weight;   // [E, out, in]
  const void* dy2;      // may be null
  const void* weight2;  // may be null
  void* dx;             // [rows, in]
};
void grouped_input_grad(const GroupedInputGradArgs& args, GpuStream stream);

// sums [+]= dy^T x of each expert; zero for those without rows.
struct GroupedWeightGradArgs {
  ExpertGroups groups;
  const void* dy;
  const void* x;
  ElementType sum_type;
  void* sums;  // [E, out, in]
  bool accumulate;
};
void grouped_weight_grad(const GroupedWeightGradArgs& args, GpuStream stream);

}  // namespace titanium::kernels
