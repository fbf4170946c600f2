// The first half of latent attention, biases and what stands between rope and attention, against plain ATen operators
// differentiated by libtorch's own autograd.
#include "titanium/ops/latent_qkv.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/GradMode.h>

#include <numbers>

#include "tests/support/tensors.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/scale_heads.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using test::tolerance;

constexpr double kEps = 1e-5, kLatentEps = 1e-3;

// A parameter with random values, and a leaf with the same values for autograd's own path.
struct Weight {
  explicit Weight(const Shape& shape, double scale = 0.3) : parameter("weight", shape) {
    parameter.materialize(at::kFloat, at::kCPU);
    const c10::AutoGradMode no_grad(false);
    parameter.value.copy_(random_tensor(shape) * scale);
    leaf = parameter.value.detach().clone().requires_grad_(true);
  }
  void expect_equal_grads(double limit) const { EXPECT_CLOSE(parameter.grad, leaf.grad(), limit); }
  Parameter parameter;
  Tensor leaf;
};

Tensor leaf_of(const Tensor& x) { return x.detach().clone().requires_grad_(true); }

// Odd sizes: 3 heads of 5 + 6 columns, values of 7.
struct Latent {
  static constexpr int64_t kBatch = 2, kTokens = 5, kDim = 16, kHeads = 3, kNope = 5, kRope = 6, kValue = 7, kRank = 9,
                           kQueryRank = 8;
  explicit Latent(bool latent_queries, bool rows_for_each_token = false)
      : with_queries(latent_queries), wq({kHeads * (kNope + kRope), latent_queries ? kQueryRank : kDim}) {
    if (rows_for_each_token) table = test::rows_at(table, {0, 1, 0, 1, 2, 0, 1, 2, 3, 0}, kTokens);
  }

  LatentQkvArgs args() {
    std::optional<LatentQueries> queries;
    if (with_queries) queries.emplace(LatentQueries{wq_a.parameter, q_norm.parameter});
    return {.norm = norm.parameter,
            .eps = kEps,
            .latent_queries = queries,
            .wq = wq.parameter,
            .wkv_a = wkv_a.parameter,
            .kv_norm = kv_norm.parameter,
            .wkv_b = wkv_b.parameter,
            .latent_eps = kLatentEps,
            .nope_dim = kNope,
            .value_dim = kValue,
            .rope_table = table};
  }

  // As the paper says it.
  Tensors expected(const Tensor& x) const {
    const Tensor n = at::rms_norm(x, {kDim}, norm.leaf, kEps);
    const auto heads = [](const Tensor& y, int64_t dim) { return y.view({kBatch, kTokens, -1, dim}); };
    const Tensor query_input =
        with_queries ? at::rms_norm(at::linear(n, wq_a.leaf), {kQueryRank}, q_norm.leaf, kLatentEps) : n;
    const Tensor q = heads(at::linear(query_input, wq.leaf), kNope + kRope);
    const Tensor latent = at::linear(n, wkv_a.leaf);
    const Tensor kv =
        heads(at::linear(at::rms_norm(latent.narrow(1, 0, kRank), {kRank}, kv_norm.leaf, kLatentEps), wkv_b.leaf),
              kNope + kValue);
    const Tensor k_rope = apply_rope(heads(latent.narrow(1, kRank, kRope), kRope), table);
    return {at::cat({q.narrow(3, 0, kNope), apply_rope(q.narrow(3, kNope, kRope), table)}, 3),
            at::cat({kv.narrow(3, 0, kNope), k_rope.expand({-1, -1, kHeads, -1})}, 3), kv.narrow(3, kNope, kValue)};
  }

  bool with_queries;
  Weight norm{{kDim}, 1.0}, wq_a{{kQueryRank, kDim}}, q_norm{{kQueryRank}, 1.0}, wq, wkv_a{{kRank + kRope, kDim}},
      kv_norm{{kRank}, 1.0}, wkv_b{{kHeads * (kNope + kValue), kRank}};
  Tensor table = rope_table(kRope, kTokens, 10000, std::nullopt, at::kCPU);
};

class LatentQkv : public testing::TestWithParam<bool> {};

void check_latent_qkv(bool latent_queries, bool rows_for_each_token) {
  Latent latent(latent_queries, rows_for_each_token);
  const Tensor x = leaf_of(random_tensor({Latent::kBatch * Latent::kTokens, Latent::kDim})), reference_x = leaf_of(x);
  for (int pass = 0; pass < 2; ++pass) {  // gradients add up
    const Qkv qkv = latent_qkv(x, latent.args());
    const Tensors expected = latent.expected(reference_x);
    const Tensors found = {qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE};
    Tensor sum = at::sum(qkv.residual_tD * 0.5), expected_sum = at::sum(reference_x * 0.5);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_CLOSE(found[i], expected[i], 2 * tolerance(at::kFloat));
      const Tensor grad = random_tensor(found[i].sizes().vec());
      sum = sum + at::sum(found[i] * grad);
      expected_sum = expected_sum + at::sum(expected[i] * grad);
    }
    sum.backward();
    expected_sum.backward();
  }
  EXPECT_CLOSE(x.grad(), reference_x.grad(), 10 * tolerance(at::kFloat));
  for (const Weight* weight : {&latent.norm, &latent.wq, &latent.wkv_a, &latent.kv_norm, &latent.wkv_b}) {
    weight->expect_equal_grads(10 * tolerance(at::kFloat));
  }
  if (!latent_queries) return;
  latent.wq_a.expect_equal_grads(10 * tolerance(at::kFloat));
  latent.q_norm.expect_equal_grads(10 * tolerance(at::kFloat));
}

TEST_P(LatentQkv, MatchesTheFormulaForwardAndBackward) { check_latent_qkv(GetParam(), /*rows_for_each_token=*/false); }

TEST_P(LatentQkv, MatchesTheFormulaWithRowsForEachToken) { check_latent_qkv(GetParam(), /*rows_for_each_token=*/true); }

TEST_P(LatentQkv, WhatDecodingKeepsMakesTheKeysAndValues) {
  Latent latent(GetParam());
  const Tensor x = random_tensor({Latent::kBatch * Latent::kTokens, Latent::kDim});
  const Qkv qkv = latent_qkv(x, latent.args());
  const LatentTokens tokens = latent_tokens(x, latent.args());
  EXPECT_TRUE(at::equal(tokens.q_BSHE, qkv.q_BSHE.detach()));
  EXPECT_EQ(tokens.latents_BS1W.sizes(), (Shape{2, 5, 1, Latent::kRank + Latent::kRope}));
  const Tensor kv = at::linear(tokens.latents_BS1W.narrow(3, 0, Latent::kRank), latent.wkv_b.leaf)
                        .unflatten(3, {Latent::kHeads, -1})
                        .squeeze(2);
  EXPECT_CLOSE(kv.narrow(3, Latent::kNope, Latent::kValue), qkv.v_BSKE, tolerance(at::kFloat));
  EXPECT_CLOSE(tokens.latents_BS1W.narrow(3, Latent::kRank, Latent::kRope).squeeze(2),
               qkv.k_BSKE.select(2, 1).narrow(2, Latent::kNope, Latent::kRope), tolerance(at::kFloat));
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutALatentOfQueries, LatentQkv, testing::Bool());

TEST(Operators, BiasesMatchAten) {
  const int64_t batch = 2, seq_len = 5, dim = 16, head_dim = 4;
  Weight norm({dim}, 1.0), wq({12, dim}), wk({8, dim}), wv({8, dim}), wo({dim, 12}), bq({12}), bk({8}), bv({8}),
      bo({dim});
  const Tensor table = rope_table(head_dim, seq_len, 10000, std::nullopt, at::kCPU);
  const Tensor x = leaf_of(random_tensor({batch * seq_len, dim})), reference_x = leaf_of(x);
  for (int pass = 0; pass < 2; ++pass) {
    const Qkv qkv = norm_qkv_rope(x, {.norm = norm.parameter,
                                      .eps = kEps,
                                      .wq = wq.parameter,
                                      .wk = wk.parameter,
                                      .wv = wv.parameter,
                                      .head_dim = head_dim,
                                      .rope_table = table,
                                      .biases = {&bq.parameter, &bk.parameter, &bv.parameter}});
    const Tensor out = linear_residual(qkv.q_BSHE.flatten(2).flatten(0, 1), wo.parameter, qkv.residual_tD,
                                       all_rows_here(), &bo.parameter);
    const Tensor n = at::rms_norm(reference_x, {dim}, norm.leaf, kEps);
    const auto heads = [&](const Weight& w, const Weight& b) {
      return at::linear(n, w.leaf, b.leaf).view({batch, seq_len, -1, head_dim});
    };
    const Tensor q = apply_rope(heads(wq, bq), table), k = apply_rope(heads(wk, bk), table), v = heads(wv, bv);
    const Tensor expected = at::linear(q.flatten(2).flatten(0, 1), wo.leaf, bo.leaf) + reference_x;
    EXPECT_CLOSE(out, expected, tolerance(at::kFloat));
    EXPECT_CLOSE(qkv.k_BSKE, k, tolerance(at::kFloat));
    EXPECT_CLOSE(qkv.v_BSKE, v, tolerance(at::kFloat));
    const Tensor a = random_tensor(out.sizes().vec()), b = random_tensor(k.sizes().vec());
    (at::sum(out * a) + at::sum(qkv.k_BSKE * b) + at::sum(qkv.v_BSKE * qkv.v_BSKE)).backward();
    (at::sum(expected * a) + at::sum(k * b) + at::sum(v * v)).backward();
  }
  EXPECT_CLOSE(x.grad(), reference_x.grad(), 10 * tolerance(at::kFloat));
  for (const Weight* weight : {&norm, &wq, &wk, &wv, &wo, &bq, &bk, &bv, &bo}) {
    weight->expect_equal_grads(10 * tolerance(at::kFloat));
  }
}

TEST(Operators, NormalisedHeadsAndScaledTokensMatchAten) {
  const Tensor x = leaf_of(random_tensor({2, 5, 3, 7}, at::kDouble)), reference_x = leaf_of(x);
  const Tensor grad = random_tensor({2, 5, 3, 7}, at::kDouble);
  const Tensor factors = random_tensor({5}, at::kDouble);
  for (const Tensor& of_tokens : {factors, random_tensor({2, 5}, at::kDouble)}) {
    const Tensor y = scale_tokens(normalise_heads(x, 0.1), of_tokens);
    const Tensor expected = reference_x * (reference_x * reference_x).mean(-1, true).add(0.1).rsqrt() *
                            of_tokens.view({of_tokens.dim() == 1 ? 1 : 2, 5, 1, 1});
    y.backward(grad);
    expected.backward(grad);
    EXPECT_CLOSE(y, expected, tolerance(at::kDouble));
  }
  EXPECT_CLOSE(x.grad(), reference_x.grad(), 5 * tolerance(at::kDouble));
  EXPECT_EQ(normalise_heads(x.detach().to(at::kBFloat16), 0.1).scalar_type(), at::kBFloat16);
  EXPECT_EQ(scale_tokens(x.detach().to(at::kBFloat16), factors.to(at::kFloat)).scalar_type(), at::kBFloat16);
}

// sin and cos of position 1 give the frequencies back.
std::vector<double> frequencies(const Tensor& table, double concentration) {
  const Tensor parts = at::view_as_real(table).to(at::kDouble);
  std::vector<double> found;
  for (int64_t i = 0; i < table.size(1); ++i) {
    const double cos = parts[1][i][0].item<double>(), sin = parts[1][i][1].item<double>();
    EXPECT_NEAR(std::hypot(cos, sin), concentration, 1e-6);
    found.push_back(std::atan2(sin, cos));
  }
  return found;
}

// The published formula, pair by pair, with DeepSeek's sizes and GPT-OSS's.
TEST(Rope, YarnStretchesTheFrequenciesThatTurnSlowly) {
  struct Row {
    int64_t head_dim;
    double theta;
    YarnScaling scaling;
    double low, high;  // the pairs between which it passes from one to the other
  };
  const double concentration = yarn_concentration(32);
  EXPECT_NEAR(concentration, 1.3465735902799727, 1e-12);
  EXPECT_EQ(yarn_concentration(1.0), 1.0);
  EXPECT_NEAR(yarn_concentration(40, 0.707), 1 + 0.0707 * std::log(40.0), 1e-12);
  const std::vector<Row> rows = {
      {64, 10000, {}, 10, 23},
      {64, 150000, {.factor = 32, .whole_bounds = false, .concentration = concentration}, 8.0927792, 17.3980257}};
  for (const Row& row : rows) {
    const auto found =
        frequencies(rope_table(row.head_dim, 3, row.theta, row.scaling, at::kCPU), row.scaling.concentration);
    for (int64_t i = 0; i < row.head_dim / 2; ++i) {
      const double plain = std::pow(row.theta, -2.0 * static_cast<double>(i) / static_cast<double>(row.head_dim));
      const double ramp = std::clamp((static_cast<double>(i) - row.low) / (row.high - row.low), 0.0, 1.0);
      const double expected = plain / row.scaling.factor * ramp + plain * (1 - ramp);
      EXPECT_NEAR(found[i], expected, 3e-6 * expected) << i;
    }
  }
}

TEST(Rope, ATableWithAConcentrationTurnsGradientsWithItToo) {
  const YarnScaling scaling = {.factor = 4, .concentration = 1.25};
  const Tensor table = rope_table(8, 5, 10000, scaling, at::kCPU);
  const Tensor x = random_tensor({1, 5, 2, 8}), back = apply_rope(apply_rope(x, table), table, /*inverse=*/true);
  EXPECT_CLOSE(back, x * (1.25 * 1.25), tolerance(at::kFloat));
}

TEST(Rope, WithoutPairsNothingTurns) {
  const Tensor q = random_tensor({1, 5, 2, 8}), k = random_tensor({1, 5, 1, 8});
  const Rotated same = rotate(q, k, rope_table(8, 5, 10000, std::nullopt, at::kCPU), false, false, RopePairs::kNone);
  EXPECT_TRUE(at::equal(same.q_BSHE, q));
  EXPECT_TRUE(at::equal(same.k_BSKE, k));
}

}  // namespace
}  // namespace titanium::ops
