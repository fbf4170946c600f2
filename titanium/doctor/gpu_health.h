// What the GPU's driver says of a GPU, through its management library (NVML), which is loaded when it is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "titanium/doctor/finding.h"

namespace titanium::doctor {

struct GpuHealth {
  std::string driver;
  unsigned clock_mhz = 0;
  unsigned most_clock_mhz = 0;
  unsigned temperature = 0;                                   // degrees Celsius
  uint64_t throttle_reasons = 0;                              // bits of NVML's nvmlClocksThrottleReasons
  std::optional<uint64_t> uncorrected_errors = std::nullopt;  // of ECC since the driver was loaded; none without ECC
  uint64_t used_bytes = 0;                                    // by all processes
};

// Nothing where the library or the GPU is missing. `pci_bus_id` as in GpuDeviceProperties.
std::optional<GpuHealth> read_gpu_health(const std::string& pci_bus_id);

// `health` was read while the GPU was busy, `own_bytes` of its memory are this process's.
std::vector<Finding> judge_gpu_health(const GpuHealth& health, uint64_t own_bytes);

}  // namespace titanium::doctor
