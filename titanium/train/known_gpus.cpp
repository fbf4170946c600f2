#include "titanium/train/known_gpus.h"

#include <cctype>

#include "titanium/base/error.h"

namespace titanium::train {
namespace {

struct KnownGpu {
  std::string_view name;
  // The least that CUDA reports. It is a little less than what is sold and differs by some 0.1 GiB between drivers;
  // these are the smallest sizes found in messages of PyTorch's allocator ("total capacity of 39.38 GiB").
  double gib;
  int compute_capability;
};

constexpr std::array kGpus = {
    KnownGpu{"A100-40G", 39.3, 80}, KnownGpu{"A100-80G", 79.1, 80}, KnownGpu{"A6000", 47.4, 86},
    KnownGpu{"L40S", 44.4, 89},     KnownGpu{"H100", 79.1, 90},     KnownGpu{"H100-NVL", 93.0, 90},
    KnownGpu{"H200", 139.7, 90},    KnownGpu{"B200", 178.3, 100},
};

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

}  // namespace

GpuDeviceProperties known_gpu(std::string_view name) {
  for (const KnownGpu& gpu : kGpus) {
    if (!same_name(gpu.name, name)) continue;
    return {.name = std::string(gpu.name),
            .total_memory = static_cast<int64_t>(gpu.gib * (1 << 30)),
            .compute_capability = gpu.compute_capability};
  }
  throw UsageError(fmt::format("--gpu {} is not a GPU whose memory is known. Use one of {}, or --gpu-memory GIB.", name,
                               known_gpu_names()));
}

std::string known_gpu_names() {
  std::string names;
  for (const KnownGpu& gpu : kGpus) names += fmt::format("{}{}", names.empty() ? "" : ", ", gpu.name);
  return names;
}

}  // namespace titanium::train
