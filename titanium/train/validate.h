// The loss on data that is not trained on.
#pragma once

#include "titanium/train/train_state.h"

namespace titanium::train {

struct ValidationReport {
  double loss = 0;     // summed over the valid tokens of all ranks / their number
  int64_t tokens = 0;  // that this rank ran, ignored ones included
};

// `validation.steps` batches of each rank, or the whole set for -1, from the beginning of the data each time when it is
// the whole set. A rank whose share ends before that of others goes on with ignored samples. Waits for the device once,
// at the end. Throws Error if there is not one valid token.
ValidationReport validate(const TrainState& run, data::Loader& loader);

}  // namespace titanium::train
