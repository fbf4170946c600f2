#include "titanium/train/memory_snapshots.h"

#include <chrono>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/log.h"
#include "titanium/tensor/gpu_memory_history.h"

namespace titanium::train {
namespace {

constexpr int64_t kEntries = 100'000;

}  // namespace

MemorySnapshots::MemorySnapshots(const JobConfig& config, Device device, int rank)
    : options_(config.profiling),
      folder_(std::filesystem::path(config.job.dump_folder) / options_.save_memory_snapshot_folder),
      rank_(rank) {
  if (!options_.enable_memory_snapshot) return;
  if (!device.is_cuda()) {
    throw UsageError(
        "profiling.enable_memory_snapshot = true needs a GPU, because it shows the GPU's memory; this run is on the "
        "CPU. Leave it off.");
  }
  log_info("Memory profiler active. Snapshot will be saved at {}", folder_.string());
  record_gpu_memory_history(kEntries);
}

MemorySnapshots::~MemorySnapshots() {
  if (options_.enable_memory_snapshot) record_gpu_memory_history(0);
}

void MemorySnapshots::after_step(int64_t step) const {
  if (!options_.enable_memory_snapshot || step % options_.profile_freq != 0) return;
  write(step, fmt::format("iteration_{}", step));
}

void MemorySnapshots::after_out_of_memory(int64_t finished_steps) const {
  if (options_.enable_memory_snapshot) write(finished_steps, fmt::format("iteration_{}_exit", finished_steps));
}

void MemorySnapshots::write(int64_t step, const std::string& folder) const {
  const std::filesystem::path file = folder_ / folder / fmt::format("rank{}_memory_snapshot.pickle", rank_);
  log_info("Dumping memory snapshot at step {}", step);
  const auto begin = std::chrono::steady_clock::now();
  try {
    write_file_atomically(file, gpu_memory_snapshot());
  } catch (const std::exception& error) {
    return log_warning("the memory snapshot cannot be written: {}", error.what());
  }
  log_info("Finished dumping memory snapshot in {:.2f} seconds",
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

}  // namespace titanium::train
