// How much of the machine is in use, under the names that Weights & Biases gives its system metrics.
#pragma once

#include <cstdint>
#include <vector>

#include "titanium/observe/scalar_writer.h"

namespace titanium::observe {

class SystemUsage {
 public:
  SystemUsage();

  // cpu (percent of all cores), memory_percent, proc.memory.rssMB, proc.memory.percent, proc.memory.availableMB,
  // proc.cpu.threads, network.sent and network.recv (bytes). The share of the cores is that since the last call, bytes
  // count from the construction. What /proc does not say is left out.
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

  Processor processor_;
  Traffic traffic_;
};

}  // namespace titanium::observe
