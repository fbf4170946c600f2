#include "titanium/models/decoder/expert_balance.h"

#include <ATen/ops/stack.h>

#include "titanium/parallel/expert_parallel.h"

namespace titanium::models::decoder {

Tensor balance_experts(const std::vector<ExpertLoad>& loads, const parallel::Mesh& mesh) {
  std::vector<Tensor> counts;
  for (const ExpertLoad& load : loads) counts.push_back(load.tokens.value);
  const Tensor sums_LE = at::stack(counts);
  parallel::sum_over_routed_tokens(sums_LE, mesh);
  const Tensor wide_LE = sums_LE.to(at::kFloat);
  const Tensor direction_LE = (wide_LE.mean(1, /*keepdim=*/true) - wide_LE).sign();
  const Tensor centred_LE = direction_LE - direction_LE.mean(1, /*keepdim=*/true);
  for (size_t layer = 0; layer < loads.size(); ++layer) {
    loads[layer].bias.value.add_(centred_LE[static_cast<int64_t>(layer)], loads[layer].coefficient);
    loads[layer].tokens.value.zero_();
  }
  return sums_LE;
}

}  // namespace titanium::models::decoder
