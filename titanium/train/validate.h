// The loss on data that is not trained on.
#pragma once

#include "titanium/train/train_state.h"

namespace titanium::train {

struct ValidationReport {
  double loss = 0;     // summed over all valid tokens / their number
  int64_t tokens = 0;  // that were run, ignored ones included
};

// `steps` batches, or the whole set for -1, from the beginning of the data each time when it is the whole set. Waits
// for the device once, at the end. Throws Error if there is not one valid token.
ValidationReport validate(models::LanguageModel& model, const data::Tokenizer& tokenizer, data::Loader& loader,
                          int64_t steps, Device device);

}  // namespace titanium::train
