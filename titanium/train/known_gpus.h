// GPUs that a run can be planned for on a machine that has none.
#pragma once

#include <string>
#include <string_view>

#include "titanium/tensor/gpu_backend.h"

namespace titanium::train {

// The GPU of that short name, in upper or lower case: "H200", "A100-80G". Throws UsageError that lists the names.
GpuDeviceProperties known_gpu(std::string_view name);

// "A100-40G, A100-80G, ...".
std::string known_gpu_names();

}  // namespace titanium::train
