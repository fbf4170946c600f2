// A toy with the parameters of a mixture of experts in both views of the ranks, and what each rank would see of a
// batch.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "titanium/nn/module.h"
#include "titanium/nn/unit.h"
#include "titanium/parallel/placement.h"
#include "titanium/parallel/tensor_parallel.h"

namespace titanium::test {

// Sizes divide by the degrees of tensor and expert parallelism; those that are sharded do so badly on purpose.
struct ToyExperts : nn::Module {
  ToyExperts()
      : dense("dense.weight", {12, 5}),
        norm("norm.weight", {5}),
        router("router.weight", {8, 5}),
        up("experts.up.weight", {8, 12, 3}),
        down("experts.down.weight", {8, 4, 6}),
        bias("experts.bias.weight", {8, 4}),
        block("block", nn::UnitRole::kBlock, {&dense, &norm, &router}),
        experts("experts", nn::UnitRole::kBlock, {&up, &down, &bias}) {
    for (Parameter* parameter : {&dense, &norm, &router, &up, &down, &bias}) add(*parameter);
    for (Parameter* parameter : experts.parameters) parameter->view = RankView::kSparse;
  }

  Parameter dense, norm, router, up, down, bias;
  nn::Unit block, experts;
};

inline void place(ToyExperts& toy, const parallel::ParallelDims& dims, int rank) {
  using enum parallel::TensorParallelStyle;
  const parallel::TensorParallelPlan plan = {{"dense", kByColumn},     {"norm", kOnSequence},
                                             {"router", kOnAllRows},   {"experts.up", kByColumn},
                                             {"experts.down", kByRow}, {"experts.bias", kOnSequence}};
  parallel::cut_parameters(toy.parameters(), plan, dims, rank);
  for (Parameter* parameter : toy.parameters()) parallel::shard(*parameter, dims, rank);
}

constexpr int64_t kToyTokens = 16;

// The gradient of one token: small whole numbers, so that sums are exact in every order and dtype.
inline Tensor toy_gradient(const Parameter& parameter, int64_t token) {
  const Tensor numbers = at::arange(volume(parameter.global_shape)) + static_cast<int64_t>(parameter.fqn.size());
  return (numbers * 7 + token * 3).remainder(5).sub(2).to(at::kFloat).view(parameter.global_shape);
}

// What this rank adds to the gradient of its part: the sum over the tokens that it sees. The places of a rank are
// computed here once more, from the order of the axes alone.
inline Tensor toy_gradient_of_rank(const ToyExperts& toy, const Parameter& parameter,
                                   const parallel::ParallelDims& dims, int rank) {
  int64_t seen_by = 1, place = 0;  // how many ranks share the tokens, and which of them this is
  const auto share = [&](int64_t degree, int64_t index) {
    seen_by *= degree;
    place = place * degree + index;
  };
  if (parameter.view == RankView::kDense) {
    share(dims.dp_replicate * dims.fsdp(), rank / dims.tp);
    if (&parameter == &toy.norm) share(dims.tp, rank % dims.tp);
  } else {
    const int64_t tensor = dims.ep > 1 ? dims.etp : dims.tp;
    share(dims.world() / (dims.ep * tensor), rank / (dims.ep * tensor));  // experts get tokens from all ranks of ep
    if (&parameter == &toy.bias) share(tensor, rank % tensor);
  }
  Tensor sum = at::zeros(parameter.global_shape);
  for (int64_t token = place; token < kToyTokens; token += seen_by) sum += toy_gradient(parameter, token);
  return box_of(sum, parameter.part).contiguous();
}

}  // namespace titanium::test
