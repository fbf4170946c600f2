// Peak memory of the device between two log lines.
#pragma once

#include <cstdint>
#include <string>

#include "titanium/tensor/tensor.h"

namespace titanium::train {

struct MemoryPeak {
  double max_active_gib = 0;  // in tensors
  double max_active_percent = 0;
  double max_reserved_gib = 0;  // taken from the device
  double max_reserved_percent = 0;
  bool of_process = false;  // both are those of the whole process
  int64_t alloc_retries = 0;
  int64_t ooms = 0;
};

// On CUDA, the counters of the caching allocator. On the CPU both peaks are the process's largest resident size, where
// the kernel lets us reset it since the last reset, else since the start.
class MemoryMonitor {
 public:
  explicit MemoryMonitor(Device device);

  // Logs a warning when there were allocation retries or out-of-memory errors.
  MemoryPeak peak() const;
  bool counts_tensors() const { return device_.is_cuda(); }
  void reset();

  const std::string& device_name() const { return device_name_; }
  // "CUDA capacity: NVIDIA H200 with 139.81GiB memory", for the start of the log.
  std::string capacity_line() const;

 private:
  MemoryPeak in_gib(int64_t active, int64_t reserved) const;

  Device device_;
  std::string device_name_;
  int64_t capacity_ = 0;
};

}  // namespace titanium::train
