#include "titanium/tensor/cuda_backend.h"

namespace titanium {

std::string cuda_versions() { return "no CUDA"; }

}  // namespace titanium
