// The loss on data that is not trained on.
#pragma once

#include "titanium/train/train_state.h"

namespace titanium::train {

struct ValidationReport {
  double loss = 0;     // summed over all ranks / the weight of their batches
  int64_t tokens = 0;  // that this rank ran, those that do not count included
};

// `validation.steps` batches of each rank, or the whole set for -1, from the beginning of the data each time when it is
// the whole set. A rank whose share ends before that of others goes on with batches that weigh nothing. Waits for the
// device once, at the end. Throws Error if all of it weighs nothing.
ValidationReport validate(const TrainState& run, BatchSource& data);

}  // namespace titanium::train
