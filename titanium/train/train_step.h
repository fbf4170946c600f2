// One step of training.
#pragma once

#include <optional>

#include "titanium/train/train_state.h"

namespace titanium::train {

// Requests from outside, such as signals, that a run obeys after a step.
struct Requests {
  bool stop = false;
  bool save = false;
};

// Tensors are scalars on the device that nobody has waited for: reading them is the caller's decision.
struct StepReport {
  Tensor loss;       // of this rank: its summed loss / total_weight, fp64
  Tensor grad_norm;  // before clipping, fp64
  double lr = 0;
  int64_t tokens = 0;                          // that this rank read for this step, those that do not count included
  int64_t weight = 0;                          // of this rank's share of the batches: see Batch
  int64_t total_weight = 0;                    // of all ranks
  double data_loading_seconds = 0;             // that the step waited for its batches
  Requests requests;                           // of any rank: all do so after this step
  std::vector<SourceTokens> tokens_by_source;  // of all ranks since the beginning of the run; empty without a mix
};

// Nothing when the data has ended; the step is then cancelled. Never waits for the device. A step whose gradient norm
// is not finite leaves the parameters and the optimizer's moments alone. All ranks step together; requests are told to
// all of them. Copies that a checkpoint still makes of parameters and moments are complete before these change.
std::optional<StepReport> train_step(TrainState& run, const Requests& requests = {});

// Means over the weight of all ranks, fp64 scalars on the device; only queued, as the step is. All ranks ask together.
struct LossOfAllRanks {
  Tensor mean;
  Tensor max;  // mean of the rank with the largest
};
LossOfAllRanks loss_of_all_ranks(const TrainState& run, const StepReport& report);

}  // namespace titanium::train
