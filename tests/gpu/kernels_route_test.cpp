#include <ATen/ops/arange.h>
#include <ATen/ops/sort.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/route.h"

namespace titanium::kernels {
namespace {

using test::wide;

const double kLimit = 4 * test::tolerance(at::kFloat);

struct Case {
  int64_t tokens, experts, top_k;
  int64_t groups = 0, limited_groups = 0;
};
// Every count of numbers that a lane holds, and experts that are a multiple of nothing.
const std::vector<Case> kCases = {{1, 1, 1},          {1, 8, 8},          {7, 5, 3},     {100, 16, 1},
                                  {333, 32, 4},       {1001, 64, 6},      {260, 128, 8}, {9, 200, 7},
                                  {65, 256, 8, 8, 4}, {50, 160, 6, 8, 3}, {33, 512, 16}, {17, 500, 16, 20, 5},
                                  {40, 24, 2, 12, 3}, {11, 30, 10, 3, 1}};

class KernelRoute : public test::KernelTest {
 protected:
  struct Result {
    Tensor experts, weights, scores;
  };
  Result run(RouteArgs args, const Tensor& logits, const Tensor& bias) const {
    const Result out{at::full({args.tokens, args.top_k}, -7, at::TensorOptions(at::kInt).device(gpu_)),
                     empty({args.tokens, args.top_k}, at::kFloat), empty({args.tokens, args.num_experts}, at::kFloat)};
    args.logits = logits.data_ptr<float>();
    args.bias = bias.defined() ? bias.data_ptr<float>() : nullptr;
    args.experts = out.experts.data_ptr<int32_t>();
    args.weights = out.weights.data_ptr<float>();
    args.scores = out.scores.data_ptr<float>();
    launch(route, args);
    return out;
  }
  static RouteArgs describe(const Case& size, RouterScores function, bool normalise, float scale) {
    RouteArgs args{};
    args.function = function;
    args.tokens = size.tokens;
    args.num_experts = size.experts;
    args.top_k = size.top_k;
    args.groups = size.groups;
    args.limited_groups = size.limited_groups;
    args.normalise = normalise;
    args.scale = scale;
    return args;
  }
  // Few distinct values, so that many are equal.
  Tensor coarse(const Shape& shape) const { return random(shape, at::kFloat).mul(2).round_().mul_(0.5); }
};

Tensor reference_scores(const Tensor& logits, RouterScores function) {
  return function == RouterScores::kSoftmax ? logits.softmax(1) : logits.sigmoid();
}

// The choice from the scores that the kernel gave, in fp32 as there: sums of two numbers have the same bits everywhere.
Tensor reference_choice(const Tensor& scores, const Tensor& bias, const Case& size) {
  Tensor choice = bias.defined() ? scores + bias : scores;
  const auto descending = [](const Tensor& values) {
    return at::sort(values, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  };
  if (size.groups > 0) {
    const Tensor grouped = choice.view({size.tokens, size.groups, -1});
    const Tensor ranks = std::get<0>(descending(grouped)).narrow(2, 0, 2).sum(2);
    const Tensor kept = std::get<1>(descending(ranks)).narrow(1, 0, size.limited_groups);
    const Tensor out = at::full({size.tokens, size.groups}, 1, at::kBool).scatter_(1, kept, false);
    choice = grouped.masked_fill(out.unsqueeze(2), -std::numeric_limits<double>::infinity()).view_as(scores);
  }
  return std::get<1>(descending(choice)).narrow(1, 0, size.top_k);
}

Tensor reference_weights(const Tensor& scores, const Tensor& experts, bool normalise, double scale) {
  const Tensor chosen = scores.gather(1, experts);
  return (normalise ? chosen / (chosen.sum(1, true) + 1e-20) : chosen) * scale;
}

TEST_F(KernelRoute, ChoosesTheBestWithTiesToTheLowerExpert) {
  for (const RouterScores function : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    for (const bool with_bias : {false, true}) {
      for (const Case& size : kCases) {
        SCOPED_TRACE(testing::Message() << size.tokens << " tokens, " << size.top_k << " of " << size.experts << ", "
                                        << size.limited_groups << " of " << size.groups << " groups, bias " << with_bias
                                        << ", function " << static_cast<int>(function));
        const Tensor logits = coarse({size.tokens, size.experts});
        const Tensor bias = with_bias ? coarse({size.experts}).mul_(0.25) : Tensor();
        const bool normalise = with_bias;
        const Result out = run(describe(size, function, normalise, 2.5F), logits, bias);
        const Tensor scores = out.scores.cpu(), experts = out.experts.cpu().to(at::kLong);
        EXPECT_CLOSE(out.scores, reference_scores(wide(logits), function), kLimit);
        EXPECT_TRUE(at::equal(experts, reference_choice(scores, with_bias ? bias.cpu() : Tensor(), size)));
        EXPECT_CLOSE(out.weights, reference_weights(wide(scores), experts, normalise, 2.5), kLimit);
      }
    }
  }
}

TEST_F(KernelRoute, EqualScoresGoToTheFirstExperts) {
  const Case size{5, 70, 9};
  const Tensor logits = at::zeros({5, 70}, at::TensorOptions(at::kFloat).device(gpu_));
  const Tensor first = at::arange(9, at::kInt).expand({5, 9});
  EXPECT_TRUE(at::equal(run(describe(size, RouterScores::kSoftmax, true, 1), logits, {}).experts.cpu(), first));
  // Scores of 0, with and without biases of -0.
  logits.fill_(-200);
  const Tensor bias = at::zeros({70}, at::kFloat);
  bias.narrow(0, 0, 5).fill_(-0.0);
  for (const Tensor& biases : {Tensor(), bias.to(gpu_)}) {
    const Result out = run(describe(size, RouterScores::kSigmoid, true, 1), logits, biases);
    EXPECT_TRUE(at::equal(out.experts.cpu(), first));
    EXPECT_EQ(out.weights.abs().max().item<float>(), 0);  // 0 / (0 + 1e-20), not NaN
  }
}

TEST_F(KernelRoute, ExtremeLogitsAndNaNStillChooseDistinctExperts) {
  const Case size{4, 40, 6, 4, 2};
  const Tensor logits = random({4, 40}, at::kFloat).mul_(1e30);
  logits.narrow(0, 1, 1).fill_(std::nan(""));
  logits.narrow(0, 2, 1).fill_(-std::numeric_limits<float>::infinity());
  for (const RouterScores function : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    const Tensor experts = std::get<0>(at::sort(run(describe(size, function, true, 1), logits, {}).experts.cpu(), 1));
    EXPECT_GE(experts.min().item<int>(), 0);
    EXPECT_LT(experts.max().item<int>(), 40);
    EXPECT_TRUE((experts.narrow(1, 1, 5) > experts.narrow(1, 0, 5)).all().item<bool>());
  }
}

TEST_F(KernelRoute, ForcedBalanceDealsExpertsInTurn) {
  const Case size{101, 12, 5, 4, 1};
  const Tensor logits = random({101, 12}, at::kFloat);
  RouteArgs args = describe(size, RouterScores::kSoftmax, true, 0.5F);
  args.force_balance = true;
  const Result out = run(args, logits, {});
  const Tensor expected = at::arange(505, at::kLong).remainder(12).view({101, 5});
  EXPECT_TRUE(at::equal(out.experts.cpu().to(at::kLong), expected));
  EXPECT_CLOSE(out.weights, reference_weights(wide(logits).softmax(1), expected, true, 0.5), kLimit);
}

TEST_F(KernelRoute, BackwardMatchesAutograd) {
  for (const RouterScores function : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    for (const bool normalise : {false, true}) {
      for (const bool with_scores : {false, true}) {
        for (const Case& size : kCases) {
          SCOPED_TRACE(testing::Message()
                       << size.tokens << " tokens, " << size.top_k << " of " << size.experts << ", normalised "
                       << normalise << ", of scores " << with_scores << ", function " << static_cast<int>(function));
          const Tensor logits = random({size.tokens, size.experts}, at::kFloat);
          const Result out = run(describe(size, function, normalise, 2.5F), logits, {});
          const Tensor grad_weights = random({size.tokens, size.top_k}, at::kFloat);
          const Tensor grad_scores = random({size.tokens, size.experts}, at::kFloat);
          const Tensor grad_logits = with_scores ? grad_scores.clone() : empty({size.tokens, size.experts}, at::kFloat);
          launch(route_backward, RouteBackwardArgs{function, grad_weights.data_ptr<float>(),
                                                   with_scores ? grad_logits.data_ptr<float>() : nullptr,
                                                   out.experts.data_ptr<int32_t>(), out.scores.data_ptr<float>(),
                                                   grad_logits.data_ptr<float>(), size.tokens, size.experts, size.top_k,
                                                   normalise, 2.5F});
          const Tensor leaf = wide(logits).set_requires_grad(true);
          const Tensor scores = reference_scores(leaf, function);
          const Tensor weights = reference_weights(scores, out.experts.cpu().to(at::kLong), normalise, 2.5);
          Tensor loss = (weights * wide(grad_weights)).sum();
          if (with_scores) loss = loss + (scores * wide(grad_scores)).sum();
          loss.backward();
          const double scale = std::max(1.0, leaf.grad().abs().max().item<double>());
          EXPECT_LE((wide(grad_logits) - leaf.grad()).abs().max().item<double>() / scale, kLimit);
        }
      }
    }
  }
}

}  // namespace
}  // namespace titanium::kernels
