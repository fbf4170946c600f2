#include "titanium/parallel/tensor_parallel.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/tensors.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/base/error.h"
#include "titanium/ops/head_loss.h"
#include "titanium/parallel/mesh.h"
#include "titanium/parallel/placement.h"

namespace titanium::parallel {
namespace {

using enum TensorParallelStyle;

TEST(TensorParallelPlan, PatternsMatchWholeNames) {
  EXPECT_TRUE(matches("layers.*.attention.{wq,wk,wv}", "layers.31.attention.wk"));
  EXPECT_FALSE(matches("layers.*.attention.{wq,wk,wv}", "layers.31.attention.wo"));
  EXPECT_FALSE(matches("layers.*.attention.{wq,wk,wv}", "layers.31.attention"));
  EXPECT_FALSE(matches("norm", "norm.weight"));
  EXPECT_FALSE(matches("layers.*.norm", "layers.1.x.norm"));
}

TEST(TensorParallelPlan, RulesGiveEachRankItsPart) {
  Parameter column("a.weight", {8, 6}), row("b.weight", {6, 8}), norm("c.weight", {6});
  cut_parameters({&column, &row, &norm}, {{"a", kByColumn}, {"b", kByRow}, {"c", kOnSequence}}, {.tp = 4}, 3);
  EXPECT_EQ(column.part, (Box{{6, 0}, {2, 6}}));
  EXPECT_EQ(row.part, (Box{{0, 6}, {6, 2}}));
  EXPECT_EQ(norm.part, (Box{{0}, {6}}));
  EXPECT_EQ(column.shard, column.part);
  EXPECT_TRUE(is_cut_by(row, "tp"));
  EXPECT_FALSE(is_cut_by(norm, "tp"));
}

TEST(TensorParallelPlan, ARuleForAParameterGoesBeforeThatForItsModule) {
  Parameter weight("a.weight", {6, 8}), bias("a.bias", {6}), sinks("sinks", {8});
  cut_parameters({&weight, &bias, &sinks}, {{"a", kByRow}, {"a.bias", kOnSequence}, {"sinks", kByColumn}}, {.tp = 2},
                 1);
  EXPECT_EQ(weight.part, (Box{{0, 4}, {6, 4}}));
  EXPECT_EQ(bias.part, (Box{{0}, {6}}));
  EXPECT_EQ(sinks.part, (Box{{4}, {4}}));
}

TEST(TensorParallelPlan, ExpertsAreCutByExpertThenByTheAxisOfTheirView) {
  const ParallelDims dims = {.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2};
  Parameter up("up.weight", {4, 6, 3}), down("down.weight", {4, 3, 6}), bias("bias.weight", {4, 6});
  for (Parameter* parameter : {&up, &down, &bias}) parameter->view = RankView::kSparse;
  cut_parameters({&up, &down, &bias}, {{"up", kByColumn}, {"down", kByRow}, {"bias", kOnAllRows}}, dims, /*rank=*/3);
  EXPECT_EQ(up.part, (Box{{2, 3, 0}, {2, 3, 3}}));
  EXPECT_EQ(down.part, (Box{{2, 0, 3}, {2, 3, 3}}));
  EXPECT_EQ(bias.part, (Box{{2, 0}, {2, 6}}));
  EXPECT_TRUE(is_cut_by(up, "ep"));
  EXPECT_TRUE(is_cut_by(up, "etp"));
  EXPECT_FALSE(is_cut_by(up, "tp"));
  EXPECT_EQ(bias.equal_grads, std::vector<std::string>{"etp"});
}

TEST(TensorParallelPlan, WhatCannotBeCutEvenlyIsRefused) {
  Parameter weight("a.weight", {9, 6});
  try {
    cut_parameters({&weight}, {{"a", kByColumn}}, {.tp = 2}, 0);
    FAIL() << "9 rows are not cut into 2";
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "parallelism.tensor_parallel_degree = 2 does not divide dim 0 of a.weight, which has 9 elements. Use a "
        "degree that divides it.");
  }
}

TEST(TensorParallelPlan, AParameterWithoutARuleIsABug) {
  Parameter weight("a.weight", {8, 6});
  EXPECT_THROW(cut_parameters({&weight}, {{"b", kByColumn}}, {.tp = 2}, 0), std::logic_error);
  EXPECT_THROW(cut_parameters({&weight}, {{"a", kByColumn}, {"*", kByRow}}, {.tp = 2}, 0), std::logic_error);
}

// Each token of a vocabulary that is cut in two is a label once, those beside the cut among them.
void expect_whole_loss(bool loss_parallel) {
  const int64_t vocabulary = 12, ignored = 4, dim = 8;
  const Tensor x = test::random_tensor({vocabulary + ignored, dim}), weight = test::random_tensor({vocabulary, dim});
  const Tensor labels = at::cat({at::arange(vocabulary), at::full({ignored}, ops::kIgnoreIndex)});
  const Tensor reference_x = x.clone().requires_grad_(true), reference_weight = weight.clone().requires_grad_(true);
  const Tensor reference = at::cross_entropy_loss(at::linear(reference_x, reference_weight), labels);
  reference.backward();
  std::array<Tensor, 2> grads_x, grads_weight;
  test::run_ranks(2, [&](comm::World& world) {
    const Mesh mesh(world, {.tp = 2});
    const auto exchange = make_row_exchange(mesh.group("tp"), /*pieces=*/1);
    Parameter head("head", {vocabulary, dim});
    cut_parameters({&head}, {{"head", kByColumn}}, mesh.dims(), world.rank());
    head.materialize(at::kFloat, at::kCPU);
    head.value.detach().copy_(box_of(weight, head.part));
    const Tensor rows = x.chunk(2)[world.rank()].clone().requires_grad_(true);
    const Tensor loss = ops::head_loss(rows, {head, *exchange, loss_parallel}, labels, 1.0 / vocabulary);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), reference.item<double>(), 1e-6 * reference.item<double>());
    grads_x[world.rank()] = rows.grad();
    grads_weight[world.rank()] = head.grad;
  });
  EXPECT_CLOSE(at::cat({grads_x[0], grads_x[1]}), reference_x.grad(), 10 * test::tolerance(at::kFloat));
  EXPECT_CLOSE(at::cat({grads_weight[0], grads_weight[1]}), reference_weight.grad(), 10 * test::tolerance(at::kFloat));
}

TEST(VocabularyShards, GiveEachLabelTheLossAndGradientsOfTheWhole) {
  for (const bool loss_parallel : {true, false}) expect_whole_loss(loss_parallel);
}

}  // namespace
}  // namespace titanium::parallel
