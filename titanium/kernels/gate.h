// y = residual + gate * x, where gate is a vector of the sample that a row belongs to; and the way back. Pointers are
// device memory; work is queued on `stream` and nothing synchronises. All arrays are contiguous, [rows, dim] or
// [samples, dim] with samples = rows / rows_of_sample. Any sizes; rows of a multiple of 16 bytes that are 16-byte
// aligned take the vector path.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

struct GateForwardArgs {
  ElementType type;
  const void* residual;
  const void* x;
  const void* gate;  // [samples, dim]
  void* y;           // may be residual or x
  int64_t rows;
  int64_t rows_of_sample;
  int64_t dim;
};
void gate_forward(const GateForwardArgs& args, GpuStream stream);

// dx = gate * dy, and dgate = sum over the rows of a sample of x * dy, as column_sums.h sums.
struct GateBackwardArgs {
  ElementType type;
  const void* dy;
  const void* x;
  const void* gate;  // [samples, dim]
  void* dx;          // may be x, or dy
  void* dgate;       // [samples, dim]
  float* scratch;    // of gate_backward_scratch_bytes
  int64_t rows;
  int64_t rows_of_sample;
  int64_t dim;
};
void gate_backward(const GateBackwardArgs& args, GpuStream stream);
// Depends on the current device.
int64_t gate_backward_scratch_bytes(const GateBackwardArgs& args);

}  // namespace titanium::kernels
