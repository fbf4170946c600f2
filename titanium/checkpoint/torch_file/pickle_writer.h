// Writes a value as a Python pickle.
#pragma once

#include <string>

#include "titanium/checkpoint/torch_file/pickle_value.h"

namespace titanium::checkpoint {

// Protocol 2, which every Python 3 reads, as does torch.load(weights_only=True) where the classes are on its list.
// Equal texts and classes are stored once.
std::string write_pickle(const PickleValue& value);

}  // namespace titanium::checkpoint
