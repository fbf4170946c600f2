#include "titanium/parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include "titanium/base/error.h"

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
  cut_parameters({&column, &row, &norm}, {{"a", kByColumn}, {"b", kByRow}, {"c", kOnSequence}}, 3, 4);
  EXPECT_EQ(column.part, (Box{{6, 0}, {2, 6}}));
  EXPECT_EQ(row.part, (Box{{0, 6}, {6, 2}}));
  EXPECT_EQ(norm.part, (Box{{0}, {6}}));
  EXPECT_EQ(column.shard, column.part);
  EXPECT_TRUE(is_cut_by(row, "tp"));
  EXPECT_FALSE(is_cut_by(norm, "tp"));
}

TEST(TensorParallelPlan, WhatCannotBeCutEvenlyIsRefused) {
  Parameter weight("a.weight", {9, 6});
  try {
    cut_parameters({&weight}, {{"a", kByColumn}}, 0, 2);
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
  EXPECT_THROW(cut_parameters({&weight}, {{"b", kByColumn}}, 0, 2), std::logic_error);
  EXPECT_THROW(cut_parameters({&weight}, {{"a", kByColumn}, {"*", kByRow}}, 0, 2), std::logic_error);
}

}  // namespace
}  // namespace titanium::parallel
