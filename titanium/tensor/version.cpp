#include "titanium/tensor/version.h"

#include <torch/headeronly/version.h>

#include "titanium/tensor/gpu_backend.h"

namespace titanium {

std::string library_versions() { return fmt::format("torch {}, {}", TORCH_VERSION, gpu_versions()); }

}  // namespace titanium
