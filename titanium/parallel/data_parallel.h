// What a train step tells its data parallelism. This class itself is that of one rank: nothing to do.
#pragma once

#include "titanium/tensor/tensor.h"

namespace titanium::parallel {

class DataParallel {
 public:
  virtual ~DataParallel() = default;
  // Before the forward of each micro batch of a step.
  virtual void begin_micro_batch(bool /*last*/) {}
  // After the backward of each. After that of the last one, every gradient is the sum over all ranks, and the current
  // stream may use it.
  virtual void end_micro_batch() {}
  // After the optimizer has written new weights.
  virtual void weights_changed() {}
};

}  // namespace titanium::parallel
