// GEMMs of the GPU's library, by the algorithm that is known to be the fastest: Note [Choice of algorithms].
// cuda/ has them; no_gpu/ says that there are none.
#pragma once

#include "titanium/ops/linear/gemm_choices.h"
#include "titanium/tensor/tensor.h"

namespace titanium::ops {

// out = a b [+ added] [+ bias], summed in fp32. Matrices on the current CUDA device; out and added have contiguous
// rows, a and b rows or columns.
struct GemmArgs {
  Tensor out_MN;
  Tensor a_MK;
  Tensor b_KN;
  Tensor added_MN;  // undefined, out, or another matrix of out's dtype
  // The scales of float8 operands: a stands for a * a_scale. They are fp32: one number for each operand, or one for
  // each row of a and each column of b. Then a has contiguous rows and b contiguous columns, with lengths that are
  // multiples of 16.
  Tensor a_scale = {}, b_scale = {};
  bool fast_accumulation = false;  // sums in the tensor cores' own precision, for float8
  Tensor bias_N = {};              // undefined, or of out's dtype: added to every row
};
void gemm(const GemmArgs& args);

// Note [Choice of algorithms]
// For each product the library offers several algorithms, and the one that it names first is not always the fastest
// when the GPU runs at its power limit. So they are tried where it counts, in training steps: between start_gemm_trials
// and finish_gemm_trials every product takes the candidates in turn, and the device's clock measures each call. The
// choice is kept on disk, by GPU, version of the library and product, so that later runs compute the same bits as long
// as the file stays. Without a choice the library's first is taken.

// The products that are listed in `choices` use what it says from now on.
void use_gemm_choices(const GemmChoices& choices);

void start_gemm_trials();
struct GemmTrial {
  std::string product;
  int64_t candidates = 0;
  double first_us = 0;  // medians: of the algorithm that the library names first, of the chosen one
  double best_us = 0;
  int64_t calls = 0;
};
struct GemmTrials {
  GemmChoices choices;
  std::vector<GemmTrial> trials;
};
// Waits for the device.
GemmTrials finish_gemm_trials();

// "130100" for 13.1.0.
std::string gemm_library_version();

}  // namespace titanium::ops
