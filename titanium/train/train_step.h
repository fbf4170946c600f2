// One step of training.
#pragma once

#include <optional>

#include "titanium/train/train_state.h"

namespace titanium::train {

// Tensors are scalars on the device that nobody has waited for: reading them is the caller's decision.
struct StepReport {
  Tensor loss;       // summed over valid tokens / their number, fp64
  Tensor grad_norm;  // before clipping, fp64
  double lr = 0;
  int64_t tokens = 0;               // trained on in this step, ignored ones included
  double data_loading_seconds = 0;  // that the step waited for the loader
};

// Nothing when the data has ended; the step is then cancelled. Never waits for the device. A step whose gradient norm
// is not finite leaves the parameters and the optimizer's moments alone.
std::optional<StepReport> train_step(TrainState& run);

}  // namespace titanium::train
