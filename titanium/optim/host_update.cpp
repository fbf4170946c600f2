#include "titanium/optim/host_update.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include "titanium/base/error.h"
#include "titanium/kernels/adamw_update.h"
#include "titanium/kernels/stochastic_rounding.h"

namespace titanium::optim {
namespace {

using kernels::AdamWArgs;
using kernels::AdamWTensor;
using kernels::ElementType;

c10::BFloat16 round(float value, const AdamWTensor& tensor, uint64_t key, int64_t i) {
  const int64_t gaps = tensor.random_gap == 0 ? 0 : i / tensor.random_row * tensor.random_gap;
  const auto number = static_cast<uint64_t>(tensor.random_first + i + gaps);
  const uint64_t bits = kernels::random_bits(key, number / 4);
  return {kernels::round_stochastically(value, kernels::rounding_bits(bits, number)), c10::BFloat16::from_bits()};
}

}  // namespace

void update_on_host(const AdamWTensor& tensor, const AdamWArgs& args) {
  for (const ElementType type : {tensor.parameter_type, tensor.gradient_type, tensor.state_type}) {
    TI_ASSERT(type == ElementType::kBFloat16);
  }
  if (args.skip != nullptr && *args.skip != 0) return;
  const float step = tensor.step != nullptr ? *tensor.step : static_cast<float>(args.step);
  const uint64_t key = tensor.random_key + static_cast<uint64_t>(step);
  const kernels::AdamWUpdate update(args, kernels::LogBetas(args), step);
  auto* parameters = static_cast<c10::BFloat16*>(tensor.parameter);
  const auto* gradients = static_cast<const c10::BFloat16*>(tensor.gradient);
  auto* exp_avgs = static_cast<c10::BFloat16*>(tensor.exp_avg);
  auto* exp_avg_sqs = static_cast<c10::BFloat16*>(tensor.exp_avg_sq);
  at::parallel_for(0, tensor.count, AdamWTensor::kChunkElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float parameter = parameters[i], exp_avg = exp_avgs[i], exp_avg_sq = exp_avg_sqs[i];
      update.apply(gradients[i], parameter, exp_avg, exp_avg_sq);
      exp_avgs[i] = exp_avg;
      exp_avg_sqs[i] = exp_avg_sq;
      parameters[i] = args.stochastic_rounding ? round(parameter, tensor, key, i) : c10::BFloat16(parameter);
    }
  });
}

}  // namespace titanium::optim
