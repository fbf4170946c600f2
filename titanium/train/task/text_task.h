// Texts, packed into sequences of tokens; each token is predicted from those before it.
#pragma once

#include "titanium/train/task/task.h"

namespace titanium::train {

// For language models. Reads the data of training and validation (text_data.h) with the tokenizer of
// model.hf_assets_path. The weight of a batch is the number of its valid tokens: those that have a label. Training data
// begins again at its end, unless it is a mix whose sources say otherwise.
TaskSpec text_task();

}  // namespace titanium::train
