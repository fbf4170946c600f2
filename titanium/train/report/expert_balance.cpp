#include "titanium/train/report/expert_balance.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace titanium::train {

Tensor measure_expert_balance(const models::Model& model, const parallel::Mesh& mesh, Device device) {
  const Tensor measured = at::zeros({model.block_count(), 4}, at::TensorOptions(at::kDouble).device(device));
  const auto [blocks, tokens_LE] = model.expert_loads();
  if (tokens_LE.defined()) {
    const Tensor tokens = tokens_LE.to(at::kDouble);
    const Tensor sum_L1 = tokens.sum(1, /*keepdim=*/true).clamp_min(1);
    const Tensor share = tokens / sum_L1;
    const auto experts = static_cast<double>(tokens.size(1));
    const Tensor entropy = -at::xlogy(share, share).sum(1) / std::max(std::log(experts), 1e-300);
    const Tensor max_over_mean = share.amax(1) * experts;
    const Tensor dead = (tokens == 0).sum(1).to(at::kDouble);
    const Tensor rows = at::stack({sum_L1.squeeze(1), max_over_mean, entropy, dead}, 1);
    for (size_t i = 0; i < blocks.size(); ++i) measured[blocks[i]].copy_(rows[static_cast<int64_t>(i)]);
  }
  mesh.reduce("pp", measured, comm::Reduce::kSum);
  return measured;
}

std::vector<ExpertBalance> read_expert_balance(const Tensor& measured) {
  std::vector<ExpertBalance> layers;
  const double* row = measured.const_data_ptr<double>();
  for (int64_t layer = 0; layer < measured.size(0); ++layer, row += 4) {
    if (row[0] > 0) layers.push_back({layer, row[1], row[2], static_cast<int64_t>(row[3])});
  }
  return layers;
}

}  // namespace titanium::train
