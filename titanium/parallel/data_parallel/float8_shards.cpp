#include "titanium/parallel/data_parallel/float8_shards.h"

#include <ATen/ops/stack.h>

#include "titanium/ops/linear/float8.h"

namespace titanium::parallel {

bool travels_as_float8(const Parameter& parameter, Dtype compute) {
  if (!parameter.float8 || !parameter.float8->is_gathered || parameter.shard_dim != 0) return false;
  // Flat buffers count in elements of the compute dtype. Tensor parallelism may have cut rows to less than one.
  return parameter.part.shape.back() % static_cast<int64_t>(c10::elementSize(compute)) == 0;
}

void find_weight_amax(const std::vector<Parameter*>& parameters, comm::Group& shards, Device device) {
  std::vector<Float8Weight*> weights;
  std::vector<Tensor> amaxes;
  for (const Parameter* parameter : parameters) {
    if (!parameter->float8 || !parameter->float8->is_gathered || parameter->float8->amax.defined()) continue;
    weights.push_back(parameter->float8.get());
    amaxes.push_back(ops::find_amax(parameter->value.detach()));
  }
  if (weights.empty()) return;
  const Tensor all = at::stack(amaxes).to(device, at::kFloat);
  if (shards.size() > 1) shards.all_reduce(all, comm::Reduce::kMax)->wait();
  // A weight that is not cut has the same amax on all these ranks, so that all may go together.
  const auto cut = std::ranges::find_if(weights, [](const Float8Weight* weight) { return !!weight->max_over_parts; });
  if (cut != weights.end()) (*cut)->max_over_parts(all);
  for (size_t i = 0; i < weights.size(); ++i) weights[i]->amax = all[static_cast<int64_t>(i)];
}

const Float8Tensor& quantized_shard(Parameter& parameter, Device device) {
  Float8Weight& float8 = *parameter.float8;
  if (!float8.shard.data.defined()) {
    const Tensor value = parameter.value.detach().to(device, /*non_blocking=*/true);
    float8.shard = ops::to_float8(value, ops::find_scale(float8.amax, ops::kE4m3), ops::kE4m3);
  }
  return float8.shard;
}

}  // namespace titanium::parallel
