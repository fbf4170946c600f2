// Snapshots of the GPU's memory for https://pytorch.org/memory_viz.
#pragma once

#include <filesystem>

#include "titanium/config/job_config.h"
#include "titanium/tensor/tensor.h"

namespace titanium::train {

// Writes <job.dump_folder>/<profiling.save_memory_snapshot_folder>/iteration_<step>/rank<rank>_memory_snapshot.pickle:
// what is allocated, and the last 100,000 allocations and frees. Without profiling.enable_memory_snapshot it never does
// anything. A snapshot that cannot be written is a warning.
class MemorySnapshots {
 public:
  // Begins to remember. Throws UsageError for a device that is no GPU.
  MemorySnapshots(const JobConfig& config, Device device, int rank);
  ~MemorySnapshots();
  MemorySnapshots(const MemorySnapshots&) = delete;
  MemorySnapshots& operator=(const MemorySnapshots&) = delete;

  // Every profiling.profile_freq steps.
  void after_step(int64_t step) const;
  // In the folder iteration_<finished_steps>_exit, before the run ends.
  void after_out_of_memory(int64_t finished_steps) const;

 private:
  void write(int64_t step, const std::string& folder) const;

  config::Profiling options_;
  std::filesystem::path folder_;
  int rank_;
};

}  // namespace titanium::train
