// Which library computes attention: chosen by what the GPU and the libraries can do, once, and logged.
#pragma once

#include <string>

#include "titanium/ops/attention/attend.h"

namespace titanium::ops {

enum class AttentionLibrary {
  kCpu,         // ATen's flash attention for CPUs
  kCudnn,       // the quickest
  kFlash,       // the only one that takes documents and windows; needs no preparation for each size
  kDefinition,  // explicit scores: any device, dtype and head dims
};

// Everything that the choice depends on.
struct AttentionCase {
  int compute_capability = 0;  // of the GPU: 90 for 9.0; 0: the CPU
  int64_t cudnn_version = 0;   // as cuDNN has it: 91900 for 9.19.0; 0: there is none
  bool avoid_cudnn = false;    // the user's wish
  bool deterministic = false;  // only algorithms that give the same bits each time
  Dtype dtype = at::kBFloat16;
  int64_t head_dim = 128;   // of queries and keys
  int64_t value_dim = 128;  // of values
  bool documents = false;   // ops::Visible: attention stays inside documents,
  bool window = false;      // sees the last keys only,
  bool sizes_vary = false;  // or calls differ in their sizes
  bool operator==(const AttentionCase&) const = default;
};

struct AttentionChoice {
  AttentionLibrary library = AttentionLibrary::kDefinition;
  std::string reason;  // why no better library was taken; empty where this is the best one for such a call
};

// Forward and backward: a library that has only one of them for a case is not chosen.
AttentionChoice choose_attention(const AttentionCase& asked);

// "cuDNN 9.19 (bfloat16, head dims 192 and 128)", "by definition (float32, head dim 64), because ...".
std::string describe(const AttentionCase& asked, const AttentionChoice& choice);

// The library for calls with such queries and values on their device. Logs a choice on a GPU when it is made; the same
// call gets the same answer ever after, the backward that of its forward. TORCH_CUDNN_SDPA_DEPRIORITIZED=1, which is
// libtorch's own switch, avoids cuDNN.
AttentionLibrary attention_library(const Tensor& q_BSHE, const Tensor& v_BTKV, const Visible& visible);

}  // namespace titanium::ops
