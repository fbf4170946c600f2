// Holds the tensors that a checkpoint has against those that a model wants.
#pragma once

#include <string>
#include <vector>

namespace titanium::checkpoint {

constexpr const char* kOtherModel = "Check model.name and model.flavor against the source of the weights.";

// `present` are the tensors of the checkpoint that should be the model's: training state and what the model can do
// without are left out. Throws Error that names `place` and a tensor, if one is missing or there is one too many.
void check_tensor_names(const std::string& place, const std::vector<std::string>& wanted,
                        const std::vector<std::string>& present);

}  // namespace titanium::checkpoint
