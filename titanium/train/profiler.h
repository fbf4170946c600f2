// Traces of steps, as torch.profiler makes them: Kineto's events of operators, kernels and our named ranges
// (tensor/trace_scope.h), in files that Perfetto and TensorBoard's plug-in read.
#pragma once

#include <filesystem>
#include <optional>

#include "titanium/config/job_config.h"
#include "titanium/tensor/tensor.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::train {

// What the profiler does in a step, which counts from 1. A cycle of profiling.profile_freq steps ends with
// profiler_active steps that are recorded; before these it warms up for profiler_warmup steps, in which the device's
// counters already run and nothing is kept; the rest of the cycle is left alone.
enum class ProfilerPhase { kWait, kWarmup, kRecord };
ProfilerPhase profiler_phase(const config::Profiling& options, int64_t step);

// Writes <job.dump_folder>/<profiling.save_traces_folder>/iteration_<step>/rank<rank>_trace.json after the last step of
// each cycle. Outside of recorded steps it costs nothing; without profiling.enable_profiling it never does anything. A
// trace that cannot be written is a warning, because a run should not end for it. All functions are to be called on the
// thread that trains.
class Profiler {
 public:
  // The next step is `finished_steps` + 1. The device's kernels are part of the traces of a GPU.
  Profiler(const JobConfig& config, Device device, int rank, int world_size, int64_t finished_steps);
  // Drops what has been recorded and not written.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // To be called after everything that belongs to the step, validation and checkpoint included.
  void after_step(int64_t step);
  // The run ends here: a cycle that was being recorded is written as it is.
  void finish();

 private:
  void begin_step(int64_t step);
  void prepare();
  void start();
  // Ends the recording and writes it; without a `step` it is dropped.
  void stop(std::optional<int64_t> step);

  config::Profiling options_;
  std::filesystem::path folder_;
  Device device_;
  int rank_, world_size_;
  int64_t last_step_;
  int64_t step_ = 0;  // that is under way
  bool prepared_ = false, recording_ = false;
  bool unloads_ = false;             // what records the device, after a cycle that steps follow
  std::optional<TraceScope> range_;  // of the step
};

}  // namespace titanium::train
