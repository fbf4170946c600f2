// GEMMs of the GPU's library, by the algorithm that is known to be the best: Note [Choice of algorithms].
// cuda/ has them; no_gpu/ says that there are none.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

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
// For each product the library offers several algorithms, and the one that it names first is not always the best. They
// are tried in two stages.
//
// In training steps, between start_gemm_trials and finish_gemm_trials, every product takes the candidates in turn, and
// the device's clock measures each call. This finds those that take the fewest cycles at the clock of the moment. But a
// large training step runs at the GPU's power limit: the clock falls until the power fits, so that the step takes as
// long as its energy divided by the limit. An algorithm that saves 2 % of the cycles and burns more makes all others
// slower by more than it gains, which its own time in the step does not show.
//
// So all candidates are then run alone, each in a short loop and the best of them in long ones, in which the clock has
// settled. At the limit the time of a call is then its energy; below the limit, where energy costs nothing, it is the
// plain time. The smallest is chosen. Every call has the same operands: those that fit into the GPU's cache stay there,
// as they may not in a step. Products that are too short for the host to keep the GPU busy with stay with the
// choice of the steps.
//
// The choice is kept on disk, by GPU, version of the library and product, so that later runs compute the same bits as
// long as the file stays. Without a choice the library's first is taken.

// The products that are listed in `choices` use what it says from now on.
void use_gemm_choices(const GemmChoices& choices);

void start_gemm_trials();
// Times of a call in loops, microseconds.
struct SustainedTimes {
  double first_us = 0;  // of the algorithm that the library names first
  double fastest_in_steps_us = 0;
  double best_us = 0;  // of the chosen one
};
struct GemmTrial {
  std::string product;
  int64_t candidates = 0;
  // Medians in the steps: of the algorithm that the library names first, of the fastest.
  double first_us = 0;
  double best_us = 0;
  int64_t calls = 0;
  std::optional<SustainedTimes> sustained = {};  // if there were loops
};
struct GemmTrials {
  GemmChoices choices;
  std::vector<GemmTrial> trials;
};
struct GemmDecision {
  bool by_loops = true;  // else by the steps alone
  // So many of the products are decided. May be empty.
  std::function<void(int64_t done, int64_t products)> on_product = nullptr;
};
// Waits for the device. The memory of the training run has to be free for loops, which take about three seconds for
// each product: one of them at a time has its operands there.
GemmTrials finish_gemm_trials(const GemmDecision& decision = {});

// "130100" for 13.1.0.
std::string gemm_library_version();

}  // namespace titanium::ops
