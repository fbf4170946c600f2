// A layer of experts against plain loops over tokens and choices, differentiated by libtorch's own autograd.
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

#include "tests/support/tensors.h"
#include "titanium/ops/experts/dispatch.h"
#include "titanium/ops/experts/expert_operand.h"
#include "titanium/ops/experts/grouped_linear.h"
#include "titanium/ops/experts/mixture_of_experts.h"
#include "titanium/ops/linear/quantize.h"
#include "titanium/tensor/host_copy.h"

namespace titanium::ops {
namespace {

using test::random_tensor;

constexpr double kEps = 1e-5;
constexpr double kLimit = 4 * 2e-6;  // all is fp64 but the norm, which computes in fp32
constexpr int64_t kDim = 16, kHidden = 24, kExperts = 8;

struct Case {
  const char* name;
  RouterOptions router;
  int64_t tokens = 13;
  bool shared = true;
  bool weighs_inputs = false;
  bool clamped = false;  // with biases
  bool balance = false;
  double gate_scale = 0.5;
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

// A parameter and a leaf with the same values.
struct Weight {
  explicit Weight(const Shape& shape, double scale = 0.3) : parameter("weight", shape) {
    parameter.materialize(at::kDouble, at::kCPU);
    const c10::AutoGradMode no_grad(false);
    parameter.value.copy_(random_tensor(shape, at::kDouble) * scale);
    leaf = parameter.value.detach().clone().requires_grad_(true);
  }
  Parameter parameter;
  Tensor leaf;
};

struct Layer {
  explicit Layer(const Case& tested)
      : tested(tested), norm({kDim}, 1.0), gate({kExperts, kDim}, tested.gate_scale), gate_bias({kExperts}) {
    const int64_t hidden = tested.clamped ? 2 * kHidden : kHidden;
    w1 = std::make_unique<Weight>(Shape{kExperts, hidden, kDim});
    w2 = std::make_unique<Weight>(Shape{kExperts, kDim, kHidden});
    if (tested.clamped) {
      b1 = std::make_unique<Weight>(Shape{kExperts, hidden}, 3.0);
      b2 = std::make_unique<Weight>(Shape{kExperts, kDim});
    } else {
      w3 = std::make_unique<Weight>(Shape{kExperts, hidden, kDim});
    }
    for (auto* weight : {&s1, &s3}) *weight = std::make_unique<Weight>(Shape{2 * kHidden, kDim});
    s2 = std::make_unique<Weight>(Shape{kDim, 2 * kHidden});
    if (tested.balance) balance = random_tensor({kExperts}, at::kDouble);
  }

  MixtureOfExpertsArgs args() {
    MixtureOfExpertsArgs args{.norm = norm.parameter,
                              .eps = kEps,
                              .gate = gate.parameter,
                              .balance_E = balance,
                              .load_E = load,
                              .router = tested.router,
                              .experts = {.down = &w2->parameter},
                              .weighs_inputs = tested.weighs_inputs};
    args.experts.hidden = {&w1->parameter};
    if (tested.clamped) {
      args.gate_bias = &gate_bias.parameter;
      args.experts.hidden_bias = &b1->parameter;
      args.experts.down_bias = &b2->parameter;
      args.experts.activation = {ActivationKind::kClampedSwiglu, 1.5};
    } else {
      args.experts.hidden.push_back(&w3->parameter);
    }
    if (tested.shared) args.shared.emplace(SharedExperts{s1->parameter, s2->parameter, s3->parameter});
    return args;
  }

  std::vector<Weight*> weights() {
    std::vector<Weight*> all = {&norm, &gate, w1.get(), w2.get()};
    if (tested.clamped) all.insert(all.end(), {&gate_bias, b1.get(), b2.get()});
    if (!tested.clamped) all.push_back(w3.get());
    if (tested.shared) all.insert(all.end(), {s1.get(), s2.get(), s3.get()});
    return all;
  }

  Case tested;
  Weight norm, gate, gate_bias;
  std::unique_ptr<Weight> w1, w2, w3, b1, b2, s1, s2, s3;
  Tensor balance, load = at::zeros({kExperts}, at::kLong);
};

// The experts of one token, best first, by the definition of the choice.
std::vector<int64_t> choose(const std::vector<double>& scores, const RouterOptions& router) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  if (router.groups > 0) {
    const auto size = static_cast<int64_t>(scores.size()) / router.groups;
    std::vector<std::pair<double, int64_t>> groups;
    for (int64_t g = 0; g < router.groups; ++g) {
      std::vector<double> inside(scores.begin() + g * size, scores.begin() + (g + 1) * size);
      std::ranges::sort(inside, std::greater<>());
      groups.emplace_back(-(inside[0] + inside[1]), g);
    }
    std::ranges::sort(groups);
    groups.resize(static_cast<size_t>(router.limited_groups));
    std::erase_if(order, [&](int64_t e) {
      return std::ranges::none_of(groups, [&](const auto& group) { return group.second == e / size; });
    });
  }
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(router.top_k));
  return order;
}

Tensor expert(const Layer& layer, int64_t e, const Tensor& x_D) {
  if (!layer.tested.clamped) {
    const Tensor product = at::silu(layer.w1->leaf[e].mv(x_D)) * layer.w3->leaf[e].mv(x_D);
    return layer.w2->leaf[e].mv(product);
  }
  const Tensor pairs = (layer.w1->leaf[e].mv(x_D) + layer.b1->leaf[e]).view({kHidden, 2});
  const Tensor gate = pairs.select(1, 0).clamp_max(1.5), up = pairs.select(1, 1).clamp(-1.5, 1.5);
  return layer.w2->leaf[e].mv(gate * at::sigmoid(1.702 * gate) * (up + 1)) + layer.b2->leaf[e];
}

Tensor by_loops(const Layer& layer, const Tensor& h_TD, std::vector<int64_t>& load) {
  const RouterOptions& router = layer.tested.router;
  const Tensor n_TD = at::rms_norm(h_TD, {kDim}, layer.norm.leaf, kEps);
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < h_TD.size(0); ++t) {
    Tensor logits_E = layer.gate.leaf.mv(n_TD[t]);
    if (layer.tested.clamped) logits_E = logits_E + layer.gate_bias.leaf;
    const Tensor scores_E = router.scores == ScoreFunction::kSoftmax ? at::softmax(logits_E, 0) : at::sigmoid(logits_E);
    const Tensor choice_E = (layer.balance.defined() ? scores_E + layer.balance : scores_E).detach().contiguous();
    std::vector<int64_t> chosen = choose({choice_E.data_ptr<double>(), choice_E.data_ptr<double>() + kExperts}, router);
    if (router.force_balance) {
      for (int64_t k = 0; k < router.top_k; ++k) chosen[static_cast<size_t>(k)] = (t * router.top_k + k) % kExperts;
    }
    std::vector<Tensor> weights;
    for (const int64_t e : chosen) weights.push_back(scores_E[e]), ++load[static_cast<size_t>(e)];
    Tensor weights_K = at::stack(weights);
    if (router.normalise) weights_K = weights_K / weights_K.sum();
    weights_K = weights_K * router.scale;
    Tensor row = h_TD[t];
    for (size_t k = 0; k < chosen.size(); ++k) {
      const Tensor weight = weights_K[static_cast<int64_t>(k)];
      row = row + (layer.tested.weighs_inputs ? expert(layer, chosen[k], weight * n_TD[t])
                                              : weight * expert(layer, chosen[k], n_TD[t]));
    }
    rows.push_back(row);
  }
  Tensor y_TD = at::stack(rows);
  if (!layer.tested.shared) return y_TD;
  return y_TD +
         at::linear(at::silu(at::linear(n_TD, layer.s1->leaf)) * at::linear(n_TD, layer.s3->leaf), layer.s2->leaf);
}

class Experts : public testing::TestWithParam<Case> {};

TEST_P(Experts, FollowTheDefinition) {
  for (const ExpertSaves saves : {ExpertSaves::kRows, ExpertSaves::kHidden, ExpertSaves::kNothing}) {
    Layer layer(GetParam());
    const Tensor h = random_tensor({layer.tested.tokens, kDim}, at::kDouble).requires_grad_(true);
    const Tensor reference_h = h.detach().clone().requires_grad_(true),
                 dy = random_tensor(h.sizes().vec(), at::kDouble);
    std::vector<int64_t> load(kExperts);
    const Tensor reference = by_loops(layer, reference_h, load);
    reference.backward(dy);
    const Tensor y = mixture_of_experts(h, layer.args(), saves);
    EXPECT_CLOSE(y, reference, kLimit);
    y.backward(dy);
    EXPECT_CLOSE(h.grad(), reference_h.grad(), kLimit);
    for (Weight* weight : layer.weights()) {
      const Tensor expected = weight->leaf.grad().defined() ? weight->leaf.grad() : at::zeros_like(weight->leaf);
      EXPECT_CLOSE(weight->parameter.grad, expected, kLimit);
    }
    EXPECT_EQ(std::vector<int64_t>(layer.load.data_ptr<int64_t>(), layer.load.data_ptr<int64_t>() + kExperts), load);
  }
}

constexpr auto kSoftmax = ScoreFunction::kSoftmax, kSigmoid = ScoreFunction::kSigmoid;

INSTANTIATE_TEST_SUITE_P(
    All, Experts,
    testing::Values(
        Case{"one_of_them", {.scores = kSoftmax, .top_k = 1}}, Case{"deepseek_16b", {.scores = kSoftmax, .top_k = 3}},
        Case{"groups",
             {.scores = kSigmoid, .top_k = 3, .normalise = true, .scale = 2.5, .groups = 4, .limited_groups = 2}},
        Case{"balanced", {.scores = kSigmoid, .top_k = 2, .normalise = true}, 13, true, false, false, true},
        Case{"qwen3", {.scores = kSoftmax, .top_k = 4, .normalise = true}, 13, false},
        Case{"llama4", {.scores = kSigmoid, .top_k = 1}, 13, true, true},
        Case{"weighed_inputs", {.scores = kSigmoid, .top_k = 2, .scale = 0.7}, 13, false, true},
        Case{"gpt_oss", {.scores = kSoftmax, .top_k = 4, .normalise = true}, 13, false, false, true},
        Case{"gpt_oss_one", {.scores = kSoftmax, .top_k = 1}, 13, true, false, true},
        Case{"all_of_them", {.scores = kSoftmax, .top_k = kExperts}},
        Case{"one_token", {.scores = kSigmoid, .top_k = 2}, 1},
        Case{"ties", {.scores = kSigmoid, .top_k = 3}, 13, false, false, false, false, 0.0},
        Case{"forced", {.scores = kSoftmax, .top_k = 3, .force_balance = true}}),
    [](const auto& info) { return info.param.name; });

TEST(ExpertLoad, CountsOnlyRunsThatHaveABackward) {
  Layer layer({"counted", {.scores = kSigmoid, .top_k = 2}});
  const Tensor h = random_tensor({5, kDim}, at::kDouble);
  mixture_of_experts(h, layer.args(), ExpertSaves::kHidden);
  EXPECT_EQ(layer.load.sum().item<int64_t>(), 0);
  mixture_of_experts(h.clone().requires_grad_(true), layer.args(), ExpertSaves::kHidden);
  EXPECT_EQ(layer.load.sum().item<int64_t>(), 10);
}

// A second run with another gate takes the choice of the first one, so that recomputation cannot change it.
TEST(KeptRouting, IsTakenByTheSecondRun) {
  Layer layer({"kept", {.scores = kSigmoid, .top_k = 2}});
  const Tensor h = random_tensor({9, kDim}, at::kDouble).requires_grad_(true);
  MixtureOfExpertsArgs args = layer.args();
  args.kept_routing = std::make_shared<KeptRouting>();
  const Tensor first = mixture_of_experts(h, args, ExpertSaves::kHidden).detach();
  {
    const c10::AutoGradMode no_grad(false);
    layer.gate.parameter.value.neg_();
    layer.gate.parameter.value_changed();
  }
  EXPECT_TRUE(at::equal(mixture_of_experts(h, args, ExpertSaves::kHidden), first));
  args.kept_routing = nullptr;
  EXPECT_FALSE(at::equal(mixture_of_experts(h, args, ExpertSaves::kHidden), first));
}

// The formulas of Note [Losses of a router], sequence by sequence.
TEST(RouterLosses, HaveTheGradientsOfTheirDefinition) {
  constexpr int64_t kSequences = 3, kLength = 5, kChoices = 2;
  for (const ScoreFunction scores : {kSoftmax, kSigmoid}) {
    const Tensor logits = random_tensor({kSequences * kLength, kExperts}, at::kDouble).requires_grad_(true);
    const RouterOptions options{.scores = scores, .top_k = kChoices};
    Routing routing = route(logits.detach(), {}, options);
    routing.logits_TE = logits.detach();
    const Tensor p = scores == kSoftmax ? at::softmax(logits, 1) : at::sigmoid(logits);
    const Tensor share = (p / p.sum(1, true)).view({kSequences, kLength, kExperts});
    Tensor loss = at::logsumexp(logits, 1).pow(2).mean() * 0.3;
    for (int64_t b = 0; b < kSequences; ++b) {
      for (int64_t e = 0; e < kExperts; ++e) {
        const auto chosen = (routing.experts_TK.narrow(0, b * kLength, kLength) == e).sum().item<int64_t>();
        const double f = static_cast<double>(kExperts * chosen) / (kChoices * kLength);
        loss = loss + 0.7 / kSequences * f * share[b].select(1, e).mean();
      }
    }
    loss.backward();
    const RouterLosses losses{.balance = 0.7 / kSequences,
                              .z = 0.3 / (kSequences * kLength),
                              .seq_len = kLength,
                              .all_rows = kSequences * kLength};
    const RouterLossGrads grads = router_loss_grads(routing, losses);
    const Tensor nothing = at::zeros({kSequences * kLength, kChoices}, at::kDouble);
    EXPECT_CLOSE(route_backward(nothing, routing, options, grads.scores_TE) + grads.logits_TE, logits.grad(), 1e-12);
  }
}

// Gradients of weights that wait hold rows, and not what these were gathered from as well.
TEST(ExpertOperand, LetsTokensGoOnceRowsAreGathered) {
  const Tensor tokens = random_tensor({3, kDim}, at::kDouble);
  const Dispatch dispatch =
      sort_by_expert(copy_to_device(std::vector<int32_t>{2, 0, 2, 3, 0, 2}, at::kCPU).view({3, 2}), 5);
  const ExpertOperand operand(tokens, dispatch), copy = operand;
  EXPECT_EQ(tokens.use_count(), 2);
  EXPECT_EQ(copy.count(), 6);
  EXPECT_TRUE(at::equal(operand.tensor(), gather_rows(tokens, dispatch)));
  EXPECT_EQ(tokens.use_count(), 1);
  EXPECT_EQ(copy.count(), 6);
  EXPECT_TRUE(copy.source().is_same(operand.tensor()));
}

TEST(ExpertOperand, GradientsThatWaitHoldNoGradientOfTokens) {
  Layer layer({"deferred", {.scores = kSigmoid, .top_k = 2}, 13, /*shared=*/false});
  GradQueue deferred;
  for (Weight* weight : layer.weights()) weight->parameter.deferred = &deferred;
  const Tensor h = random_tensor({13, kDim}, at::kDouble).requires_grad_(true);
  const Tensor dy = random_tensor({13, kDim}, at::kDouble);
  mixture_of_experts(h, layer.args(), ExpertSaves::kHidden).backward(dy);
  EXPECT_FALSE(deferred.empty());
  EXPECT_EQ(dy.use_count(), 1);
}

TEST(ExpertOperand, GradientsThatWaitHoldLinesAndNoRowsInFloat8) {
  const auto make = [](int64_t columns) {
    return std::pair{Float8Tensor{random_tensor({4, columns}).to(kE4m3), {}, random_tensor({4, 1})},
                     ExpertLines{random_tensor({columns, 8}).to(kE4m3), random_tensor({2, columns}), {}}};
  };
  const auto [grad_rows, grad_lines] = make(kHidden);
  const auto [x_rows, x_lines] = make(kDim);
  const ExpertOperand grad = ExpertOperand::of_float8(grad_rows, grad_lines),
                      x = ExpertOperand::of_float8(x_rows, x_lines);
  GradQueue deferred;
  Parameter weight("weight", {2, kHidden, kDim});
  weight.float8 = std::make_unique<Float8Weight>();
  weight.deferred = &deferred;
  accumulate_grouped_weight_grad(grad, x, weight, copy_to_device(std::vector<int32_t>{1, 4}, at::kCPU));
  EXPECT_EQ(deferred.size(), 1U);
  for (const Float8Tensor& rows : {grad_rows, x_rows}) {
    EXPECT_EQ(rows.data.use_count(), 2);  // here and in the list of this loop
    EXPECT_EQ(rows.reciprocal.use_count(), 2);
  }
  EXPECT_TRUE(grad.lines({}).data_CL.is_same(grad_lines.data_CL));
  EXPECT_TRUE(x.is_float8_only());
}

TEST(Dispatch, OrdersPartsByExpertAndThenBySource) {
  // Two sources have sent 2, 0, 1 and 1, 3, 0 rows for three experts.
  const Dispatch order = order_parts(at::tensor({2, 0, 1, 1, 3, 0}, at::kInt).view({2, 3}), 7);
  EXPECT_TRUE(at::equal(order.choice_of_row_R, at::tensor({0, 1, 3, 4, 5, 6, 2}, at::kInt)));
  EXPECT_TRUE(at::equal(order.row_of_choice_R, at::tensor({0, 1, 6, 2, 3, 4, 5}, at::kInt)));
  EXPECT_TRUE(at::equal(order.ends_E, at::tensor({3, 6, 7}, at::kInt)));
}

TEST(Dispatch, SortsByExpertAndThenByChoice) {
  const Tensor experts = copy_to_device(std::vector<int32_t>{2, 0, 2, 3, 0, 2}, at::kCPU).view({3, 2});
  const Dispatch dispatch = sort_by_expert(experts, 5);
  const auto numbers = [](const Tensor& x) {
    return std::vector<int32_t>(x.data_ptr<int32_t>(), x.data_ptr<int32_t>() + x.numel());
  };
  EXPECT_EQ(numbers(dispatch.choice_of_row_R), (std::vector<int32_t>{1, 4, 0, 2, 5, 3}));
  EXPECT_EQ(numbers(dispatch.row_of_choice_R), (std::vector<int32_t>{2, 0, 3, 5, 1, 4}));
  EXPECT_EQ(numbers(dispatch.ends_E), (std::vector<int32_t>{2, 2, 5, 6, 6}));
  EXPECT_EQ(numbers(dispatch.counts()), (std::vector<int32_t>{2, 0, 3, 1, 0}));
}

}  // namespace
}  // namespace titanium::ops
