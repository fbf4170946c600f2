// Reductions follow from placements: experts in the sparse view beside ordinary parameters in the dense one, compared
// with one rank.
#include "titanium/parallel/placement.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "tests/support/threaded_ranks.h"
#include "tests/support/toy_experts.h"
#include "titanium/base/error.h"
#include "titanium/ops/init.h"
#include "titanium/ops/record.h"
#include "titanium/optim/adam.h"
#include "titanium/parallel/data_parallel/fully_shard.h"
#include "titanium/parallel/grad_reduction.h"

namespace titanium::parallel {
namespace {

using test::ToyExperts;

struct Layout {
  const char* name;
  ParallelDims dims;
  int64_t expert_shard_dim = 0;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"fsdp2_tp2_ep2", {.dp_shard = 2, .tp = 2, .ep = 2}},
      {"fsdp4_tp2_ep2_etp2", {.dp_shard = 4, .tp = 2, .ep = 2, .etp = 2}},
      {"fsdp4_tp2_ep2_etp2_on_dim1", {.dp_shard = 4, .tp = 2, .ep = 2, .etp = 2}, 1},
      {"fsdp2_tp2", {.dp_shard = 2, .tp = 2}},  // without expert parallelism the views are one
      {"tp4_ep2", {.tp = 4, .ep = 2}},          // experts are sharded, the rest is not
      {"hsdp2x2_tp2_ep4", {.dp_replicate = 2, .dp_shard = 2, .tp = 2, .ep = 4}},
      {"hsdp2x2_tp2_ep2_etp2", {.dp_replicate = 2, .dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}},
      {"fsdp2_cp2_tp2_ep2", {.dp_shard = 2, .cp = 2, .tp = 2, .ep = 2}},
  };
  return all;
}

// What a step leaves behind, whole: initial values, gradients, norm, and values that were rounded stochastically.
struct Outcome {
  std::map<std::string, Tensor> initial, grads, updated;
  std::vector<double> norms;  // of each rank
};

Outcome empty_outcome(int64_t ranks) {
  Outcome outcome;
  const ToyExperts toy;
  for (const Parameter* parameter : toy.parameters()) {
    for (auto* tensors : {&outcome.initial, &outcome.grads, &outcome.updated}) {
      (*tensors)[parameter->fqn] = at::zeros(parameter->global_shape, at::kBFloat16).fill_(NAN);
    }
  }
  outcome.norms.resize(static_cast<size_t>(ranks));
  return outcome;
}

// Every rank writes what it holds into its box of the whole: ranks that hold the same write the same.
void store(std::map<std::string, Tensor>& whole, const Parameter& parameter, const Tensor& shard) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  box_of(whole.at(parameter.fqn), parameter.shard).copy_(shard.detach());
}

void step(comm::World& world, const Layout& layout, Outcome& outcome) {
  const ParallelDims& dims = layout.dims;
  const Mesh mesh(world, dims);
  ToyExperts toy;
  toy.up.shard_dim = toy.down.shard_dim = layout.expert_shard_dim;
  place(toy, dims, world.rank());
  toy.materialize(at::kBFloat16, at::kCPU);
  for (Parameter* parameter : toy.parameters()) {
    ops::init_normal(*parameter, /*seed=*/5, /*std=*/1.0);
    store(outcome.initial, *parameter, parameter->value);
  }
  mesh.host_group("world")->barrier();
  FullyShard data_parallel({&toy.block, &toy.experts}, mesh, std::make_unique<ShardContext>(at::kCPU, at::kFloat), {});
  data_parallel.begin_micro_batch(/*last=*/true);
  Tensor x = at::ones({1}).requires_grad_(true);
  for (nn::Unit* unit : {&toy.block, &toy.experts}) {
    x = unit->run(x, [&](const Tensor& input) {
      for (const Parameter* parameter : unit->parameters) {
        const Tensor part = box_of(outcome.initial.at(parameter->fqn), parameter->part).to(at::kFloat);
        EXPECT_TRUE(at::equal(parameter->in(at::kFloat), part)) << parameter->fqn << " is not gathered";
      }
      return ops::on_backward(ops::Tensors{input * 2}, [&, unit] {
        for (Parameter* p : unit->parameters) p->accumulate(toy_gradient_of_rank(toy, *p, dims, world.rank()));
      })[0];
    });
  }
  x.sum().backward();
  data_parallel.end_micro_batch();
  sum_replicated_grads(toy.parameters(), mesh);
  for (const Parameter* parameter : toy.parameters()) store(outcome.grads, *parameter, parameter->grad);
  const Tensor norm = global_grad_norm(toy.parameters(), mesh);
  outcome.norms[static_cast<size_t>(world.rank())] = norm.item<double>();
  optim::Adam optimizer(toy.parameters(), {.rounding_seed = 9});
  optimizer.materialize();
  optimizer.step(/*lr=*/1e-3, norm, /*max_norm=*/1.0);
  for (const Parameter* parameter : toy.parameters()) store(outcome.updated, *parameter, parameter->value);
  mesh.host_group("world")->barrier();
}

Outcome run(const Layout& layout) {
  Outcome outcome = empty_outcome(layout.dims.world());
  test::run_ranks(static_cast<int>(layout.dims.world()), [&](comm::World& world) { step(world, layout, outcome); });
  return outcome;
}

const Outcome& one_rank() {
  static const Outcome outcome = run({"one", {}});
  return outcome;
}

void expect_equal(const std::map<std::string, Tensor>& found, const std::map<std::string, Tensor>& expected) {
  for (const auto& [fqn, tensor] : expected) EXPECT_TRUE(at::equal(found.at(fqn), tensor)) << fqn;
}

TEST(Placements, OneRankHasTheSumOverAllTokens) {
  const ToyExperts toy;
  double squares = 0;
  for (const Parameter* parameter : toy.parameters()) {
    Tensor sum = at::zeros(parameter->global_shape);
    for (int64_t token = 0; token < test::kToyTokens; ++token) sum += test::toy_gradient(*parameter, token);
    EXPECT_TRUE(at::equal(one_rank().grads.at(parameter->fqn).to(at::kFloat), sum)) << parameter->fqn;
    squares += sum.square().sum().item<double>();
    EXPECT_FALSE(at::equal(one_rank().updated.at(parameter->fqn), one_rank().initial.at(parameter->fqn)));
  }
  EXPECT_EQ(one_rank().norms[0], std::sqrt(squares));
}

class PlacementLayouts : public ::testing::TestWithParam<Layout> {};

TEST_P(PlacementLayouts, InitialBitsGradientsNormAndRoundingAreThoseOfOneRank) {
  const Outcome outcome = run(GetParam());
  expect_equal(outcome.initial, one_rank().initial);
  expect_equal(outcome.grads, one_rank().grads);
  for (const double norm : outcome.norms) EXPECT_EQ(norm, one_rank().norms[0]);
  expect_equal(outcome.updated, one_rank().updated);
}

INSTANTIATE_TEST_SUITE_P(All, PlacementLayouts, ::testing::ValuesIn(layouts()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Placements, ThePartsOfAllRanksCoverAParameterOncePerReplica) {
  for (const Layout& layout : layouts()) {
    std::map<std::string, int64_t> held, replicas;
    for (int rank = 0; rank < layout.dims.world(); ++rank) {
      ToyExperts toy;
      toy.up.shard_dim = toy.down.shard_dim = layout.expert_shard_dim;
      place(toy, layout.dims, rank);
      for (const Parameter* parameter : toy.parameters()) {
        held[parameter->fqn] += volume(parameter->shard.shape);
        replicas[parameter->fqn] = replica_of(*parameter, layout.dims, rank).count;
      }
    }
    const ToyExperts whole;
    for (const Parameter* parameter : whole.parameters()) {
      EXPECT_EQ(held[parameter->fqn], replicas[parameter->fqn] * volume(parameter->global_shape)) << parameter->fqn;
    }
  }
}

TEST(Placements, AnAxisOfTheViewCutsOrReplicates) {
  const ParallelDims dims = {.pp = 2, .dp_replicate = 2, .dp_shard = 4, .tp = 2, .ep = 2, .etp = 2};
  ToyExperts toy;
  place(toy, dims, /*rank=*/0);
  const auto sets = [&](const Parameter& parameter) { return axis_sets(parameter, dims); };
  EXPECT_EQ(sets(toy.dense).cut, (Axes{"pp", "fsdp", "tp"}));
  EXPECT_EQ(sets(toy.dense).replicated, Axes{"dp_replicate"});
  EXPECT_EQ(sets(toy.norm).cut, (Axes{"pp", "fsdp"}));
  EXPECT_EQ(sets(toy.norm).replicated, (Axes{"dp_replicate", "tp"}));
  EXPECT_EQ(sets(toy.down).cut, (Axes{"pp", "efsdp", "ep", "etp"}));
  EXPECT_EQ(sets(toy.bias).replicated, (Axes{"dp_replicate", "etp"}));
  EXPECT_EQ(axes_to_sum(toy.norm, dims), Axes{"tp"});
  EXPECT_EQ(axes_to_sum(toy.router, dims), Axes{});  // every rank computes its whole gradient
  EXPECT_EQ(axes_to_sum(toy.bias, dims), Axes{"etp"});
  EXPECT_EQ(axes_to_sum(toy.up, dims), Axes{});
}

TEST(Placements, AxesWithOneRankAreLeftOut) {
  ToyExperts toy;
  place(toy, {}, /*rank=*/0);
  EXPECT_EQ(axis_sets(toy.up, {}).cut, Axes{});
  EXPECT_EQ(axis_sets(toy.up, {}).replicated, Axes{});
}

TEST(Placements, SeveralAxesCutOneDim) {
  const ParallelDims dims = {.dp_shard = 4, .ep = 2};  // efsdp 2
  Parameter experts("experts.weight", {8, 3, 2});
  experts.view = RankView::kSparse;
  cut(experts, "ep", 0, dims, /*rank=*/3);
  EXPECT_EQ(experts.part, (Box{{4, 0, 0}, {4, 3, 2}}));
  shard(experts, dims, /*rank=*/3);
  EXPECT_EQ(experts.shard, (Box{{6, 0, 0}, {2, 3, 2}}));
  EXPECT_EQ(experts.part, (Box{{4, 0, 0}, {4, 3, 2}}));
}

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Placements, WhatCannotBeCutEvenlyIsRefused) {
  Parameter experts("experts.weight", {6, 9, 2});
  experts.view = RankView::kSparse;
  EXPECT_EQ(error_of([&] { cut(experts, "ep", 0, {.dp_shard = 4, .ep = 4}, 0); }),
            "parallelism.expert_parallel_degree = 4 does not divide dim 0 of experts.weight, which has 6 elements. Use "
            "a degree that divides it.");
  EXPECT_EQ(error_of([&] { cut(experts, "etp", 1, {.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}, 0); }),
            "parallelism.expert_tensor_parallel_degree = 2 does not divide dim 1 of experts.weight, which has 9 "
            "elements. Use a degree that divides it.");
  experts.shard_dim = 1;
  EXPECT_EQ(error_of([&] { shard(experts, {.dp_shard = 4, .ep = 2}, 0); }),
            "the number of ranks that share the shards of experts = 2 does not divide dim 1 of experts.weight, which "
            "has 9 elements. Use a degree that divides it.");
}

TEST(Placements, AUnitWithParametersOfTwoViewsIsABug) {
  test::run_ranks(2, [](comm::World& world) {
    const ParallelDims dims = {.dp_shard = 2, .ep = 2};
    const Mesh mesh(world, dims);
    ToyExperts toy;
    place(toy, dims, world.rank());
    const nn::Unit mixed("mixed", nn::UnitRole::kBlock, {&toy.dense, &toy.up});
    EXPECT_THROW(data_parallel_groups(mixed, mesh), std::logic_error);
    mesh.host_group("world")->barrier();
  });
}

TEST(Placements, AParameterThatIsNotShardedIsABug) {
  test::run_ranks(2, [](comm::World& world) {
    const Mesh mesh(world, {.dp_shard = 2});
    const ToyExperts toy;
    EXPECT_THROW(data_parallel_groups(toy.block, mesh), std::logic_error);
    mesh.host_group("world")->barrier();
  });
}

}  // namespace
}  // namespace titanium::parallel
