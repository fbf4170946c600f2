// How many bf16 operations a second a device is sold with: what MFU is measured against.
#pragma once

#include <string_view>

namespace titanium::train {

// The peak of the GPU with this name, without sparsity. An unknown GPU is taken for an A100, with a warning.
double peak_flops(std::string_view gpu_name);

}  // namespace titanium::train
