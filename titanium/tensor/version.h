// What this build was made from, for `titanium --version`.
#pragma once

#include <string>

namespace titanium {

// "torch 2.11.0, CUDA 13.0, NCCL 2.28.9" or "torch 2.11.0, no CUDA".
std::string library_versions();

}  // namespace titanium
