// Logs the steps of a run without keeping the device waiting.
#pragma once

#include <optional>

#include "titanium/tensor/streams.h"
#include "titanium/train/report/metrics.h"
#include "titanium/train/train_step.h"

namespace titanium::train {

// On the CPU a step is logged at once. From a GPU its results are copied while the next step is queued, so that the
// device has work when the host waits for them; the line says when the device was done, however late it is read.
class StepLogger {
 public:
  // Right before the first step, on all ranks; `run` and `metrics` outlive it. Begins the time of the run.
  StepLogger(const TrainState& run, Metrics& metrics);

  // After each step, on all ranks: counts it, logs the one before if that is still to be logged, and if this one is to
  // be logged, queues the reading of its results. Throws as `flush` does.
  void add(const StepReport& report);

  // Logs what is still to be logged, if anything: waits for that step, not for what is queued after it. Throws Error
  // when its loss or its norm is not finite.
  void flush();

 private:
  void begin_reading(const StepReport& report);

  const TrainState& run_;
  Metrics& metrics_;
  Tensor host_;             // loss, largest loss and norm of the step that is to be logged
  Tensor host_experts_;     // what measure_expert_balance gives, likewise; undefined for a model without experts
  Fence read_, last_read_;  // of that step; of the one that was logged last
  double last_finished_ = 0;
  std::optional<StepResults> pending_;
  IntervalCounts counts_;  // up to `pending_`
};

}  // namespace titanium::train
