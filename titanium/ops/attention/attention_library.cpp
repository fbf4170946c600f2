#include "titanium/ops/attention/attention_library.h"

#include <ATen/Context.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::ops {
namespace {

// The limits are those that libtorch 2.11 keeps itself, in sdp_utils.cpp.
constexpr int kOldestGpu = 80;
constexpr int kNewestGpu = 121;
constexpr int64_t kOldestCudnn = 90000;
constexpr int64_t kLargestCudnnHeadDim = 128;
// Beyond it cuDNN has the dims of latent attention, forward and backward, on Hopper and B200; 9.11 and 9.12 had a bug.
constexpr int64_t kLatentKeyDim = 192, kLatentValueDim = 128;
constexpr int64_t kOldestCudnnWithLatentDims = 91300;
constexpr int64_t kLargestFlashHeadDim = 256;

std::string capability_text(int capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

std::string version_text(int64_t cudnn) { return fmt::format("{}.{}", cudnn / 10000, cudnn % 10000 / 100); }

bool has_little_shared_memory(int capability) {
  return (capability >= 86 && capability <= 89) || capability == 120 || capability == 121;
}

// Why neither library can; empty: nothing stands against them.
std::string obstacle_to_both(const AttentionCase& asked) {
  if (asked.dtype != at::kBFloat16 && asked.dtype != at::kHalf) return "cuDNN and FlashAttention compute in 16 bits";
  if (asked.compute_capability < kOldestGpu || asked.compute_capability > kNewestGpu) {
    return fmt::format("cuDNN and FlashAttention need compute capability {} to {}, and the GPU has {}",
                       capability_text(kOldestGpu), capability_text(kNewestGpu),
                       capability_text(asked.compute_capability));
  }
  if (asked.head_dim % 8 != 0 || asked.value_dim % 8 != 0)
    return "cuDNN and FlashAttention need head dims that are multiples of 8";
  return "";
}

int64_t larger_dim(const AttentionCase& asked) { return std::max(asked.head_dim, asked.value_dim); }

bool has_latent_dims(const AttentionCase& asked) {
  return asked.head_dim == kLatentKeyDim && asked.value_dim == kLatentValueDim;
}

// "head dim 128", "head dims 192 and 128".
std::string dims_text(const AttentionCase& asked) {
  if (asked.head_dim == asked.value_dim) return fmt::format("head dim {}", asked.head_dim);
  return fmt::format("head dims {} and {}", asked.head_dim, asked.value_dim);
}

std::string obstacle_to_latent_dims(const AttentionCase& asked) {
  if (asked.compute_capability < 90 || asked.compute_capability >= 110) {
    return fmt::format("cuDNN takes head dims 192 and 128 on compute capability 9.0 to 10.9, and the GPU has {}",
                       capability_text(asked.compute_capability));
  }
  if (asked.cudnn_version < kOldestCudnnWithLatentDims) {
    return fmt::format("cuDNN {} is older than {}, which takes head dims 192 and 128",
                       version_text(asked.cudnn_version), version_text(kOldestCudnnWithLatentDims));
  }
  return "";
}

std::string obstacle_to_cudnn(const AttentionCase& asked) {
  if (asked.avoid_cudnn) return "TORCH_CUDNN_SDPA_DEPRIORITIZED is set";
  if (asked.cudnn_version == 0) return "there is no cuDNN";
  if (asked.cudnn_version < kOldestCudnn) {
    return fmt::format("cuDNN {} is older than {}", version_text(asked.cudnn_version), version_text(kOldestCudnn));
  }
  if (larger_dim(asked) > kLargestCudnnHeadDim && !has_latent_dims(asked)) {
    return fmt::format("cuDNN takes head dims up to {}", kLargestCudnnHeadDim);
  }
  if (asked.deterministic) return "cuDNN's backward is not deterministic";
  return has_latent_dims(asked) ? obstacle_to_latent_dims(asked) : "";
}

std::string obstacle_to_flash(const AttentionCase& asked) {
  const int64_t dim = larger_dim(asked);  // the smaller one is filled up
  if (dim > kLargestFlashHeadDim) {
    return fmt::format("FlashAttention takes head dims up to {}", kLargestFlashHeadDim);
  }
  if (has_little_shared_memory(asked.compute_capability) && dim > 192 && dim <= 224) {
    return fmt::format("FlashAttention has no backward for head dims from 193 to 224 on compute capability {}",
                       capability_text(asked.compute_capability));
  }
  return "";
}

std::string name_of(AttentionLibrary library, int64_t cudnn_version) {
  switch (library) {
    case AttentionLibrary::kCpu:
      return "ATen's for CPUs";
    case AttentionLibrary::kCudnn:
      return "cuDNN " + version_text(cudnn_version);
    case AttentionLibrary::kFlash:
      return "FlashAttention";
    case AttentionLibrary::kDefinition:
      break;
  }
  return "by definition";
}

bool avoids_cudnn() {
  const char* value = std::getenv("TORCH_CUDNN_SDPA_DEPRIORITIZED");
  return value != nullptr && std::string_view(value) == "1";
}

// Choices of this process; ranks may be threads of it.
class Choices {
 public:
  AttentionLibrary of(int device, const AttentionCase& asked) {
    const std::lock_guard lock(mutex_);
    for (const Made& made : made_) {
      if (made.device == device && made.asked == asked) return made.library;
    }
    return make(device, asked);
  }

 private:
  struct Made {
    int device;
    AttentionCase asked;  // without what belongs to the device
    AttentionLibrary library;
  };

  AttentionLibrary make(int device, AttentionCase asked) {
    made_.push_back({device, asked, AttentionLibrary::kDefinition});
    asked.compute_capability = gpu_device_properties(device).compute_capability;
    asked.cudnn_version = at::Context::hasCuDNN() ? at::Context::versionRuntimeCuDNN() : 0;
    asked.avoid_cudnn = avoids_cudnn();
    const AttentionChoice choice = choose_attention(asked);
    const std::string line = describe(asked, choice);
    if (logged_.insert(line).second) log_info("Attention: {}", line);  // GPUs of one kind say it once
    return made_.back().library = choice.library;
  }

  std::mutex mutex_;
  std::vector<Made> made_;  // a handful
  std::set<std::string> logged_;
};

}  // namespace

AttentionChoice choose_attention(const AttentionCase& asked) {
  if (asked.compute_capability == 0) return {AttentionLibrary::kCpu, ""};
  const std::string both = obstacle_to_both(asked);
  if (!both.empty()) return {AttentionLibrary::kDefinition, both};
  const bool made_for_flash = asked.documents || asked.window || asked.sizes_vary;
  const std::string no_cudnn = made_for_flash ? "" : obstacle_to_cudnn(asked);
  if (!made_for_flash && no_cudnn.empty()) return {AttentionLibrary::kCudnn, ""};
  const std::string no_flash = obstacle_to_flash(asked);
  if (no_flash.empty()) return {AttentionLibrary::kFlash, no_cudnn};
  return {AttentionLibrary::kDefinition, no_cudnn.empty() ? no_flash : no_cudnn + " and " + no_flash};
}

std::string describe(const AttentionCase& asked, const AttentionChoice& choice) {
  std::string kind = asked.documents ? ", inside documents" : asked.sizes_vary ? ", sizes vary" : "";
  if (asked.window) kind += ", windows";
  return fmt::format("{} ({}, {}{}){}", name_of(choice.library, asked.cudnn_version), dtype_name(asked.dtype),
                     dims_text(asked), kind, choice.reason.empty() ? "" : ", because " + choice.reason);
}

AttentionLibrary attention_library(const Tensor& q, const Tensor& v, const Visible& visible) {
  if (q.device().is_cpu()) return AttentionLibrary::kCpu;
  static Choices choices;
  const at::Context& context = at::globalContext();
  return choices.of(q.device().index(),
                    {.deterministic = context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly(),
                     .dtype = q.scalar_type(),
                     .head_dim = q.size(3),
                     .value_dim = v.size(3),
                     .documents = visible.documents != nullptr,
                     .window = visible.window > 0,
                     .sizes_vary = visible.sizes_vary});
}

}  // namespace titanium::ops
