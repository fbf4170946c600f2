// Rotary position embedding: a pair of elements of a head is a complex number that is multiplied by
// exp(i * position * frequency_i).
#pragma once

#include <optional>

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

// Which elements are pair i of a head of E.
enum class RopePairs {
  kAdjacent,  // x[2i] and x[2i+1], as Llama's original code has it
  kHalves,    // x[i] and x[i + E/2], as Hugging Face has it
  kNone,      // there are no pairs: nothing is rotated
};

// Stretches low frequencies to a longer context (Llama 3.1).
struct RopeScaling {
  double factor = 8.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  int64_t original_max_position = 8192;
};

// Stretches frequencies by how often they turn within the original context (YaRN): those that turn more than
// `beta_fast` times stay, those that turn less than `beta_slow` times are divided by `factor`, and in between the
// number of the pair decides, linearly.
struct YarnScaling {
  double factor = 40.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  int64_t original_max_position = 4096;
  bool whole_bounds = true;    // where the band begins and ends is rounded outward to whole pairs (not by GPT-OSS)
  double concentration = 1.0;  // cos and sin are multiplied by it, so that scores grow by its square
};

// 1 + 0.1 * mscale * log(factor), or 1 for a factor that does not stretch: what YaRN multiplies queries and keys with.
double yarn_concentration(double factor, double mscale = 1.0);

// exp(i * position * frequency) for positions 0 .. positions-1 as complex64 [positions, head_dim / 2].
Tensor rope_table(int64_t head_dim, int64_t positions, double theta, const std::optional<RopeScaling>& scaling,
                  Device device);
// The same with YaRN, times its concentration.
Tensor rope_table(int64_t head_dim, int64_t positions, double theta, const YarnScaling& scaling, Device device);

// Note [Rows of the rope table]
// What rotates takes rows of such a table: [S, E/2] where the tokens of every sequence have the positions 0 .. S-1, or
// [B, S, E/2] where each token brings its own, as positions that start again with each document do. Kernels read the
// latter as one long sequence: token t of the batch has row t % table_rows.
inline int64_t table_rows(const Tensor& table) { return table.numel() / table.size(-1); }
// S of either.
inline int64_t table_seq_len(const Tensor& table) { return table.size(-2); }

// Rotates x [B, S, H, E] by rows of the table: Note [Rows of the rope table]. `inverse` rotates the other way (the
// backward). Computes in fp32; x may have any strides.
Tensor apply_rope(const Tensor& x_BSHE, const Tensor& table_SE, bool inverse = false,
                  RopePairs pairs = RopePairs::kAdjacent);

// The same for queries [B, S, H, E] and keys [B, S, K, E] that are given up: the results may lie in their memory.
struct Rotated {
  Tensor q_BSHE;
  Tensor k_BSKE;
  Tensor q_amax, k_amax;  // their largest magnitudes, fp32, where our kernels find them on the way and they are wanted
};
Rotated rotate(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& table_SE, bool inverse = false,
               bool with_amax = false, RopePairs pairs = RopePairs::kAdjacent);

}  // namespace titanium::ops
