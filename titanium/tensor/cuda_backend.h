// What differs between a build with CUDA and one without; cuda/ and no_cuda/ hold one implementation each.
#pragma once

#include <string>

namespace titanium {

// "CUDA 13.0, NCCL 2.28.9" or "no CUDA".
std::string cuda_versions();

}  // namespace titanium
