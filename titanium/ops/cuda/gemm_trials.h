// The trials of a product's candidates: Note [Choice of algorithms] in gemm.h.
#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <optional>
#include <vector>

#include "titanium/ops/cuda/gemm_plan.h"
#include "titanium/ops/linear/gemm_candidates.h"

namespace titanium::ops {

// A moment of the device's clock.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record() const;  // on the current stream
  void wait() const;
  // Both have happened.
  double us_since(const Event& begin) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// The calls of one product in training steps.
class StepTrials {
 public:
  // Queues the product by the next of its candidates.
  void run_next(const GemmPlan& plan, const GemmArgs& args);
  int64_t calls() const { return static_cast<int64_t>(samples_.size()); }
  // Of each candidate; the device must have finished.
  std::vector<StepTime> times(size_t candidates) const;

 private:
  struct Sample {
    size_t candidate = 0;
    Event begin, end;
  };
  std::deque<Sample> samples_;
};

// Chooses the fastest in the steps.
GemmTrial choose_by_steps(GemmPlan& plan, int64_t calls, const std::vector<StepTime>& times);

// Chooses the one of the smallest time in loops. Does nothing where there is one alone or the product is too short for
// loops.
std::optional<SustainedTimes> choose_by_loops(GemmPlan& plan, const GemmProduct& product,
                                              const std::vector<StepTime>& times);

}  // namespace titanium::ops
