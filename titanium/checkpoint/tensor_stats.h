// Minimum, maximum and mean of stored tensors.
#pragma once

#include <string>

#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {

// Statistics of the finite numbers; NaN where there are none.
struct TensorStats {
  double min = 0;
  double max = 0;
  double mean = 0;
  int64_t nan = 0;
  int64_t inf = 0;
};

// Reads the tensor slice by slice. Throws as WeightsSource::read does.
TensorStats stats_of(const WeightsSource& source, const std::string& name);

}  // namespace titanium::checkpoint
