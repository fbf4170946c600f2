#include "titanium/parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include "titanium/base/error.h"
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

}  // namespace
}  // namespace titanium::parallel
