// How much of the machine is in use, under the names that Weights & Biases gives its system metrics.
#pragma once

#include <cstdint>
#include <vector>

#include "titanium/base/machine/nvml.h"
#include "titanium/observe/scalar_writer.h"

namespace titanium::observe {

class SystemUsage {
 public:
  // Finds the GPUs through NVML where its library is there.
  explicit SystemUsage(const char* nvml_library = "libnvidia-ml.so.1");

  // cpu (percent of all cores), memory_percent, proc.memory.rssMB, proc.memory.percent, proc.memory.availableMB,
  // proc.cpu.threads, network.sent and network.recv (bytes); for each GPU N of the machine gpu.N.gpu (percent of the
  // time in which kernels ran), gpu.N.memory (in which memory was read or written), gpu.N.memoryAllocated (percent),
  // gpu.N.memoryAllocatedBytes, gpu.N.temp, gpu.N.powerWatts, gpu.N.enforcedPowerLimitWatts and gpu.N.powerPercent. The
  // share of the cores is that since the last call, bytes count from the construction. What /proc or the driver does
  // not say is left out.
  std::vector<Scalar> sample();

 private:
  struct Processor {
    double busy = 0;
    double total = 0;
  };
  struct Traffic {
    double received = 0;
    double sent = 0;
  };
  static Processor read_processor();
  static Traffic read_traffic();
  void add_gpus(std::vector<Scalar>& values) const;

  Processor processor_;
  Traffic traffic_;
  Nvml nvml_;
};

}  // namespace titanium::observe
