// Every operator against plain ATen operators differentiated by libtorch's own autograd.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/GradMode.h>

#include <numbers>

#include "tests/support/tensors.h"
#include "titanium/ops/embedding.h"
#include "titanium/ops/feed_forward.h"
#include "titanium/ops/head_loss.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/linear/multiply.h"
#include "titanium/ops/norm_qkv_rope.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/ops/rope.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using test::tolerance;

constexpr double kEps = 1e-5;

// A parameter with random values, and a leaf with the same values for autograd's own path.
struct Weight {
  explicit Weight(const Shape& shape, double scale = 0.1) : parameter("weight", shape) {
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

// Two tensors in, three out: one is an input as it came, one is not used afterwards.
Tensors mix(const Tensors& x, Parameter& weight) {
  const Tensor a = linear(x[0].tanh(), weight), b = linear(x[1] * a, weight);
  return {a + b, x[1], linear(x[0], weight)};
}

TEST(Recompute, OfSeveralTensorsGivesTheSameBits) {
  Weight weight({6, 6}, 1.0);
  const Tensor first = random_tensor({5, 6}), second = random_tensor({5, 6});
  std::vector<Tensors> results;
  for (const bool again : {false, true}) {
    weight.parameter.zero_grad();
    const Tensors x = {leaf_of(first), leaf_of(second)};
    const auto run = [&](const Tensors& inputs) { return mix(inputs, weight.parameter); };
    const Tensors y = again ? recompute(run, x) : run(x);
    (y[0].sum() * y[1].pow(2).sum()).backward();
    results.push_back({y[0].detach(), y[1].detach(), y[2].detach(), x[0].grad(), x[1].grad(), weight.parameter.grad});
  }
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
}

TEST(OnBackward, OfSeveralTensorsIsCalledOnceWhenAllGradientsAreThere) {
  const Tensor x = leaf_of(random_tensor({3})), y = leaf_of(random_tensor({3})), numbers = at::randint(5, {3});
  int calls = 0;
  const Tensors same = on_backward({x, numbers, y}, [&] {
    ++calls;
    EXPECT_FALSE(x.grad().defined() || y.grad().defined());
  });
  EXPECT_TRUE(same[1].is_same(numbers));
  (same[0] * same[2]).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(x.grad(), y.detach()));
  EXPECT_TRUE(at::equal(y.grad(), x.detach()));
  // One of two is enough; what led to the other one only is left alone.
  Weight weight({3});
  const Tensor led = leaf_of(random_tensor({1, 3}));
  on_backward({x * 2.0, rms_norm(led, weight.parameter, kEps)}, [&] { ++calls; })[0].sum().backward();
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(led.grad().defined());
}

TEST(Operators, RmsNormMatchesAten) {
  for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{1, 7}, {3, 130}, {57, 256}}) {
    Weight weight({dim}, 1.0);
    const Tensor x = leaf_of(random_tensor({rows, dim})), reference_x = leaf_of(x), dy = random_tensor({rows, dim});
    const Tensor y = rms_norm(x, weight.parameter, kEps);
    const Tensor reference = at::rms_norm(reference_x, {dim}, weight.leaf, kEps);
    y.backward(dy);
    reference.backward(dy);
    EXPECT_CLOSE(y, reference, tolerance(at::kFloat));
    EXPECT_CLOSE(x.grad(), reference_x.grad(), 4 * tolerance(at::kFloat));
    weight.expect_equal_grads(tolerance(at::kFloat));
  }
}

TEST(Operators, MultiplyAddsAndScales) {
  for (const Dtype dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensor a = random_tensor({5, 7}, dtype), b = random_tensor({9, 7}, dtype).t(),
                 added = random_tensor({5, 9}, dtype);
    const Tensor product = at::mm(a.to(at::kDouble), b.to(at::kDouble)), out = at::empty_like(added);
    multiply(out, a, b);
    EXPECT_CLOSE(out, product, tolerance(dtype));
    multiply(out, a, b, added);
    EXPECT_CLOSE(out, product + added, tolerance(dtype));
    multiply(out, a, b, added, {.product = 2.5, .added = -3});
    EXPECT_CLOSE(out, 2.5 * product - 3 * added.to(at::kDouble), tolerance(dtype));
  }
}

TEST(Operators, LinearResidualMatchesAtenAndAccumulates) {
  Weight weight({24, 40});
  const Tensor residual = leaf_of(random_tensor({9, 24})), x = leaf_of(random_tensor({9, 40})),
               dy = random_tensor({9, 24});
  const Tensor reference_x = leaf_of(x);
  for (int pass = 0; pass < 2; ++pass) {
    const Tensor y = linear_residual(x, weight.parameter, residual);
    const Tensor reference = at::linear(reference_x, weight.leaf) + residual.detach();
    EXPECT_CLOSE(y, reference, tolerance(at::kFloat));
    y.backward(dy);
    reference.backward(dy);
  }
  EXPECT_CLOSE(x.grad(), reference_x.grad(), tolerance(at::kFloat));
  EXPECT_CLOSE(residual.grad(), 2 * dy, tolerance(at::kFloat));
  weight.expect_equal_grads(tolerance(at::kFloat));
}

TEST(Operators, RopeRotatesByTheTextbookFormulaAndBack) {
  const int64_t head_dim = 8, positions = 5;
  const Tensor table = rope_table(head_dim, positions, 10000, std::nullopt, at::kCPU);
  const Tensor x = random_tensor({2, positions, 3, head_dim}), y = apply_rope(x, table);
  for (int64_t s = 0; s < positions; ++s) {
    for (int64_t i = 0; i < head_dim / 2; ++i) {
      const double angle = static_cast<double>(s) * std::pow(10000.0, -2.0 * static_cast<double>(i) / head_dim);
      const double a = x[1][s][2][2 * i].item<double>(), b = x[1][s][2][2 * i + 1].item<double>();
      EXPECT_NEAR(y[1][s][2][2 * i].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-5);
      EXPECT_NEAR(y[1][s][2][2 * i + 1].item<double>(), a * std::sin(angle) + b * std::cos(angle), 1e-5);
    }
  }
  EXPECT_CLOSE(apply_rope(y, table, /*inverse=*/true), x, tolerance(at::kFloat));
}

// The published formula, frequency by frequency.
TEST(Operators, ScaledRopeStretchesLowFrequenciesAsLlama31Does) {
  const int64_t head_dim = 128;
  const double theta = 500000, factor = 8, low = 1, high = 4, original = 8192;
  const Tensor table = at::view_as_real(rope_table(head_dim, 2, theta, RopeScaling{}, at::kCPU));
  int stretched = 0, kept = 0, between = 0;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / head_dim);
    const double wavelength = 2 * std::numbers::pi / frequency;
    double expected = frequency;
    if (wavelength > original / low) {
      expected = frequency / factor;
      ++stretched;
    } else if (wavelength < original / high) {
      ++kept;
    } else {
      const double smooth = (original / wavelength - low) / (high - low);
      expected = (1 - smooth) * frequency / factor + smooth * frequency;
      ++between;
    }
    EXPECT_NEAR(table[1][i][1].item<double>(), std::sin(expected), 2e-6 * std::sin(expected)) << i;
  }
  EXPECT_GT(std::min({stretched, kept, between}), 0);
}

TEST(Operators, RopeTakesAnyStrides) {
  const Tensor table = rope_table(8, 5, 10000, std::nullopt, at::kCPU);
  const Tensor x = random_tensor({2, 8, 3, 5}).transpose(1, 3);  // the head dim is not the inner one
  EXPECT_TRUE(at::equal(apply_rope(x, table), apply_rope(x.contiguous(), table)));
}

TEST(Operators, RopeOfHalvesIsThatOfPairsInAnotherOrder) {
  const int64_t head_dim = 8;
  const Tensor table = rope_table(head_dim, 5, 10000, std::nullopt, at::kCPU), x = random_tensor({2, 5, 3, head_dim});
  // Element i and element i + 4 of a head become neighbours.
  const auto as_pairs = [](const Tensor& halves) { return halves.unflatten(3, {2, -1}).transpose(3, 4).flatten(3); };
  for (const bool inverse : {false, true}) {
    const Tensor rotated = apply_rope(x, table, inverse, RopePairs::kHalves);
    EXPECT_TRUE(at::equal(as_pairs(rotated), apply_rope(as_pairs(x), table, inverse)));
    EXPECT_FALSE(at::equal(rotated, apply_rope(x, table, inverse)));
  }
}

// Rows for the tokens of two sequences of 5, whose positions start again at other places.
Tensor rows_of_each_token(const Tensor& table) {
  return test::rows_at(table, {0, 1, 2, 0, 1, 0, 0, 1, 2, 3}, /*seq_len=*/5);
}

TEST(Operators, RopeOfRowsForEachTokenRotatesEverySequenceByItsOwn) {
  const Tensor table = rope_table(8, 5, 10000, std::nullopt, at::kCPU), rows = rows_of_each_token(table);
  const Tensor x = random_tensor({2, 5, 3, 8});
  EXPECT_EQ(rows.sizes(), (Shape{2, 5, 4}));
  for (const auto pairs : {RopePairs::kAdjacent, RopePairs::kHalves}) {
    const Tensor rotated = apply_rope(x, rows, /*inverse=*/false, pairs);
    for (const int64_t row : {0, 1}) {
      const Tensor alone = apply_rope(x.narrow(0, row, 1), rows[row], /*inverse=*/false, pairs);
      EXPECT_TRUE(at::equal(rotated.narrow(0, row, 1), alone));
    }
    EXPECT_FALSE(at::equal(rotated, apply_rope(x, table, /*inverse=*/false, pairs)));
  }
}

void check_norm_qkv_rope(bool with_head_norms, bool rows_for_each_token = false) {
  const int64_t batch = 2, seq_len = 5, dim = 32, head_dim = 8;
  Weight norm({dim}, 1.0), wq({32, dim}), wk({16, dim}), wv({16, dim}), q_norm({head_dim}, 1.0),
      k_norm({head_dim}, 1.0);
  const Tensor positions = rope_table(head_dim, seq_len, 500000, RopeScaling{}, at::kCPU);
  const Tensor table = rows_for_each_token ? rows_of_each_token(positions) : positions;
  const Tensor x = leaf_of(random_tensor({batch * seq_len, dim})), reference_x = leaf_of(x);
  NormQkvRopeArgs args{norm.parameter, kEps, wq.parameter, wk.parameter, wv.parameter, head_dim, table};
  if (with_head_norms) {
    args.pairs = RopePairs::kHalves;
    args.head_norms.emplace(HeadNorms{q_norm.parameter, k_norm.parameter, kEps});
  }
  const Qkv qkv = norm_qkv_rope(x, args);
  const Tensor n = at::rms_norm(reference_x, {dim}, norm.leaf, kEps);
  const auto heads = [&](const Weight& w) { return at::linear(n, w.leaf).view({batch, seq_len, -1, head_dim}); };
  const auto rotated = [&](const Weight& w, const Weight& head_norm) {
    const Tensor h = heads(w);
    return apply_rope(with_head_norms ? at::rms_norm(h, {head_dim}, head_norm.leaf, kEps) : h, table, false,
                      args.pairs);
  };
  const Tensor q = rotated(wq, q_norm), k = rotated(wk, k_norm), v = heads(wv);
  EXPECT_CLOSE(qkv.q_BSHE, q, tolerance(at::kFloat));
  EXPECT_CLOSE(qkv.k_BSKE, k, tolerance(at::kFloat));
  EXPECT_CLOSE(qkv.v_BSKE, v, tolerance(at::kFloat));
  const Tensor a = random_tensor(q.sizes().vec()), b = random_tensor(k.sizes().vec()),
               c = random_tensor(v.sizes().vec());
  const Tensor d = random_tensor(x.sizes().vec());
  (at::sum(qkv.q_BSHE * a) + at::sum(qkv.k_BSKE * b) + at::sum(qkv.v_BSKE * c) + at::sum(qkv.residual_tD * d))
      .backward();
  (at::sum(q * a) + at::sum(k * b) + at::sum(v * c) + at::sum(reference_x * d)).backward();
  EXPECT_CLOSE(x.grad(), reference_x.grad(), 4 * tolerance(at::kFloat));
  for (const Weight* weight : {&norm, &wq, &wk, &wv}) weight->expect_equal_grads(4 * tolerance(at::kFloat));
  if (!with_head_norms) return;
  for (const Weight* weight : {&q_norm, &k_norm}) weight->expect_equal_grads(4 * tolerance(at::kFloat));
}

TEST(Operators, NormQkvRopeMatchesAten) {
  for (const bool rows_for_each_token : {false, true})
    check_norm_qkv_rope(/*with_head_norms=*/false, rows_for_each_token);
}

TEST(Operators, NormQkvRopeWithNormsOfHeadsMatchesAten) {
  for (const bool rows_for_each_token : {false, true})
    check_norm_qkv_rope(/*with_head_norms=*/true, rows_for_each_token);
}

TEST(Operators, FeedForwardMatchesAtenAndItsPoliciesAreBitEqual) {
  const int64_t tokens = 11, dim = 16, hidden = 40;
  Weight norm({dim}, 1.0), w1({hidden, dim}), w2({dim, hidden}), w3({hidden, dim});
  const FeedForwardArgs args = {norm.parameter, kEps, w1.parameter, w2.parameter, w3.parameter};
  const Tensor h = random_tensor({tokens, dim}), dy = random_tensor({tokens, dim});
  std::vector<Tensor> input_grads;
  std::vector<std::vector<Tensor>> weight_grads;
  for (const auto saves : {FeedForwardSaves::kEverything, FeedForwardSaves::kGateAndUp, FeedForwardSaves::kNothing}) {
    for (Weight* weight : {&norm, &w1, &w2, &w3}) weight->parameter.zero_grad();
    const Tensor input = leaf_of(h);
    feed_forward(input, args, saves).backward(dy);
    input_grads.push_back(input.grad());
    weight_grads.emplace_back();
    for (const Weight* weight : {&norm, &w1, &w2, &w3}) weight_grads.back().push_back(weight->parameter.grad);
  }
  for (size_t policy = 1; policy < input_grads.size(); ++policy) {
    EXPECT_TRUE(at::equal(input_grads[0], input_grads[policy]));
    for (size_t i = 0; i < weight_grads[0].size(); ++i) {
      EXPECT_TRUE(at::equal(weight_grads[0][i], weight_grads[policy][i])) << i;
    }
  }

  const Tensor reference_h = leaf_of(h), n = at::rms_norm(reference_h, {dim}, norm.leaf, kEps);
  const Tensor reference = reference_h + at::linear(at::silu(at::linear(n, w1.leaf)) * at::linear(n, w3.leaf), w2.leaf);
  reference.backward(dy);
  EXPECT_CLOSE(feed_forward(h, args, FeedForwardSaves::kNothing), reference, tolerance(at::kFloat));
  EXPECT_CLOSE(input_grads[0], reference_h.grad(), 4 * tolerance(at::kFloat));
  for (const Weight* weight : {&norm, &w1, &w2, &w3}) weight->expect_equal_grads(4 * tolerance(at::kFloat));
}

TEST(Operators, EmbeddingAddsTheGradientsOfRepeatedTokens) {
  Weight table({7, 4}, 1.0);
  const Tensor tokens = at::randint(7, {20}, at::kLong), dy = random_tensor({20, 4});
  embedding(tokens, table.parameter, at::kFloat).backward(dy);
  at::embedding(table.leaf, tokens).backward(dy);
  table.expect_equal_grads(tolerance(at::kFloat));
}

TEST(Operators, HeadLossMatchesCrossEntropyOverManyChunksAndIgnoresMarkedLabels) {
  const int64_t tokens = 9000, dim = 8, vocabulary = 300;  // more than two chunks
  Weight head({vocabulary, dim}, 1.0);
  const Tensor x = leaf_of(random_tensor({tokens, dim})), reference_x = leaf_of(x);
  Tensor labels = at::randint(vocabulary, {tokens}, at::kLong);
  labels.narrow(0, 4000, 500).fill_(kIgnoreIndex);
  const double scale = 1.0 / 8500;
  const Tensor loss = head_loss(x, {head.parameter}, labels, scale);
  const Tensor reference = at::cross_entropy_loss(at::linear(reference_x, head.leaf), labels);
  loss.backward();
  reference.backward();
  EXPECT_NEAR(loss.item<double>(), reference.item<double>(), 1e-6 * reference.item<double>());
  EXPECT_CLOSE(x.grad(), reference_x.grad(), 4 * tolerance(at::kFloat));
  head.expect_equal_grads(10 * tolerance(at::kFloat));
}

TEST(Operators, HeadLossWithoutGradientLeavesTheWeightAlone) {
  Weight head({10, 4});
  head_loss(random_tensor({6, 4}), {head.parameter}, at::randint(10, {6}, at::kLong), 1.0);
  EXPECT_FALSE(head.parameter.grad.defined());
}

// Twice x; tells whether its backward may overwrite the gradient that arrives.
Tensor doubled(const Tensor& x, bool& same_memory) {
  Tensor y;
  {
    const c10::AutoGradMode no_grad(false);
    y = x + x;
  }
  record({x}, {y}, [&same_memory](const Tensors& grads) -> Tensors {
    const Tensor mine = own(grads[0]);
    same_memory = mine.data_ptr() == grads[0].data_ptr();
    return {(mine + mine).t().contiguous().t()};  // a view, as attention gives
  });
  return y;
}

TEST(Operators, AGradientIsOverwrittenOnlyWhereNobodyElseHoldsIt) {
  const Tensor x = leaf_of(random_tensor({3, 4})), dy = random_tensor({3, 4});
  bool first = false, second = false;
  doubled(doubled(x, first), second).backward(dy);
  EXPECT_TRUE(first);
  EXPECT_FALSE(second) << "dy is ours";
  EXPECT_CLOSE(x.grad(), 4 * dy, tolerance(at::kFloat));
  bool expanded = true;
  at::sum(doubled(x, expanded)).backward();
  EXPECT_FALSE(expanded);
}

TEST(Operators, ASumOfGradientsIsOpenedWhereItBelongs) {
  Parameter parameter("weight", {3});
  parameter.materialize(at::kBFloat16, at::kCPU);
  const auto made = parameter.open_grad_sum(at::kCPU);
  EXPECT_TRUE(made.is_first);
  EXPECT_EQ(made.sum.scalar_type(), at::kBFloat16);
  const auto again = parameter.open_grad_sum(at::kCPU);
  EXPECT_FALSE(again.is_first);
  EXPECT_EQ(again.sum.data_ptr(), parameter.grad.data_ptr());
  parameter.zero_grad();
  parameter.grad_place = random_tensor({3});
  EXPECT_EQ(parameter.open_grad_sum(at::kCPU).sum.data_ptr(), parameter.grad_place.data_ptr());
  parameter.grad_place = Tensor();
  parameter.gather_around_use(at::kFloat);
  const Tensor of_part = parameter.open_grad_sum(at::kCPU).sum;
  EXPECT_EQ(of_part.data_ptr(), parameter.part_grad.data_ptr());
  EXPECT_EQ(of_part.scalar_type(), at::kFloat);
}

TEST(Operators, RecomputationIsBitEqual) {
  const int64_t dim = 16;
  Weight norm({dim}, 1.0), w1({32, dim}), w2({dim, 32}), w3({32, dim});
  const FeedForwardArgs args = {norm.parameter, kEps, w1.parameter, w2.parameter, w3.parameter};
  const auto block = [&](const Tensor& x) {
    return feed_forward(feed_forward(x, args, FeedForwardSaves::kGateAndUp), args, FeedForwardSaves::kGateAndUp);
  };
  const Tensor x = leaf_of(random_tensor({5, dim})), again = leaf_of(x), dy = random_tensor({5, dim});
  block(x).backward(dy);
  const Tensor kept_grad = w1.parameter.grad;
  w1.parameter.zero_grad();
  recompute(block, again).backward(dy);
  EXPECT_TRUE(at::equal(x.grad(), again.grad()));
  EXPECT_TRUE(at::equal(kept_grad, w1.parameter.grad));
}

}  // namespace
}  // namespace titanium::ops
