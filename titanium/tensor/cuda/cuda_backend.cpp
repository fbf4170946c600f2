#include "titanium/tensor/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace titanium {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// NCCL is loaded with libtorch_cuda; its headers are not needed to ask for its version.
std::string nccl_version() {
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) return "no NCCL";
  return fmt::format("NCCL {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace

std::string cuda_versions() {
  int runtime = 0;
  ::cudaRuntimeGetVersion(&runtime);
  return fmt::format("CUDA {}, {}", version_text(runtime), nccl_version());
}

}  // namespace titanium
