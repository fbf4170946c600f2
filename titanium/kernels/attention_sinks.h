// Attention sinks at the end of attention: Note [A sink joins at the end] in ops/attention/sinks.h.
//
// Outputs are [batch, tokens, heads, head_dim], sums of exponentials [batch, heads, tokens], all contiguous device
// memory, 16-byte aligned; head_dim is 1, 2, 4, ... 32 words of 16 bytes. Work is queued on `stream` and nothing
// synchronises.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

struct HeadRows {
  int64_t batch;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
};

// out *= sigmoid(lse - sink) in place, and with_sinks = log(exp(lse) + exp(sink)).
struct AddSinksArgs {
  ElementType type;  // of out
  HeadRows rows;
  void* out;
  const float* log_sum_exp;
  const float* sinks;  // [heads]
  float* with_sinks;   // as log_sum_exp, and other memory
};
void add_sinks(const AddSinksArgs& args, GpuStream stream);

// products = -exp(sink - lse) <grad, out>, where out and lse have the sinks already: their sums over batch and tokens
// are the gradient of the sinks.
struct SinkProductsArgs {
  ElementType type;  // of grad and out
  HeadRows rows;
  const void* grad;
  const void* out;
  const float* log_sum_exp;
  const float* sinks;
  float* products;  // [batch, heads, tokens]
};
void sink_products(const SinkProductsArgs& args, GpuStream stream);

}  // namespace titanium::kernels
