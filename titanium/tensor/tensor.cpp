#include "titanium/tensor/tensor.h"

#include "titanium/base/error.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium {

Dtype parse_dtype(std::string_view name) {
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  throw UsageError(fmt::format("'{}' is not a dtype. Use float32, bfloat16 or float16.", name));
}

std::string_view dtype_name(Dtype dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    default:
      return c10::toString(dtype);
  }
}

Device parse_device(std::string_view name, int local_rank) {
  const int gpus = gpu_device_count();
  if (name == "cpu" || (name == "auto" && gpus == 0)) return at::kCPU;
  if (name != "auto" && name != "cuda")
    throw UsageError(fmt::format("'{}' is not a device. Use auto, cpu or cuda.", name));
  if (local_rank >= gpus) {
    throw UsageError(
        fmt::format("rank {} of this machine needs a GPU of its own, but there are {} ({}). Use training.device = "
                    "\"cpu\" or fewer ranks.",
                    local_rank, gpus, gpu_versions()));
  }
  return Device(at::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
}

}  // namespace titanium
