// A layer of experts on several ranks against all of it on one, where tokens choose as badly as they can; and pairs
// whose rows travel while the other computes.
#include "titanium/parallel/expert_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/tensors.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/ops/experts/mixture_of_experts.h"
#include "titanium/parallel/placement.h"

namespace titanium::parallel {
namespace {

constexpr int64_t kDim = 6, kHidden = 4, kExperts = 8;

Tensor seeded_tensor(const Shape& shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kDouble);
}

struct Choice {
  const char* name;
  int64_t tokens;  // of each rank
  int64_t top_k;
  std::vector<int64_t> preferred = {};  // experts that every token chooses
};

void PrintTo(const Choice& choice, std::ostream* out) { *out << choice.name; }

// What one rank has of the layer.
struct Layer {
  Layer(const Choice& choice, const ParallelDims& dims, int rank)
      : norm("norm.weight", {kDim}),
        gate("gate.weight", {kExperts, kDim}),
        bias("gate.bias", {kExperts}),
        w1("w1", {kExperts, kHidden, kDim}),
        w2("w2", {kExperts, kDim, kHidden}),
        w3("w3", {kExperts, kHidden, kDim}),
        top_k(choice.top_k) {
    uint64_t seed = 1;
    for (Parameter* parameter : all()) {
      const bool stacked = parameter->global_shape.size() == 3;
      if (stacked) {
        parameter->view = RankView::kSparse;
        cut(*parameter, "ep", 0, dims, rank);
      }
      parameter->materialize(at::kDouble, at::kCPU);
      const Tensor whole = seeded_tensor(parameter->global_shape, seed++);
      parameter->value.detach().copy_(stacked ? whole.narrow(0, parameter->part.offset[0], parameter->part.shape[0])
                                              : whole);
    }
    for (const int64_t expert : choice.preferred) bias.value.detach()[expert] += 100.0 - static_cast<double>(expert);
  }

  std::vector<Parameter*> all() { return {&norm, &gate, &bias, &w1, &w2, &w3}; }

  ops::MixtureOfExpertsArgs args(ops::ExpertExchange& exchange) {
    return {.norm = norm,
            .eps = 1e-6,
            .gate = gate,
            .gate_bias = &bias,
            .router = {.scores = ops::ScoreFunction::kSoftmax, .top_k = top_k},
            .experts = {.hidden = {&w1, &w3}, .down = &w2},
            .exchange = exchange};
  }

  Parameter norm, gate, bias, w1, w2, w3;
  int64_t top_k;
};

struct Result {
  Tensor y, grad;
  std::vector<Tensor> weights;  // their gradients, in the order of Layer::all
};

Result run(Layer& layer, const Tensor& h, ops::ExpertExchange& exchange, ops::ExpertSaves saves) {
  const Tensor input = h.clone().requires_grad_(true);
  const Tensor y = ops::mixture_of_experts(input, layer.args(exchange), saves);
  y.backward(h.cos());
  Result result{y.detach(), input.grad()};
  for (const Parameter* parameter : layer.all()) result.weights.push_back(parameter->grad);
  return result;
}

class ExpertChoices : public testing::TestWithParam<Choice> {};

TEST_P(ExpertChoices, GiveOnSeveralRanksWhatOneRankComputes) {
  const Choice& choice = GetParam();
  for (const auto& [ranks, saves] :
       {std::pair{2, ops::ExpertSaves::kHidden}, std::pair{4, ops::ExpertSaves::kNothing}}) {
    const Tensor h = seeded_tensor({ranks * choice.tokens, kDim}, 50);
    Layer whole(choice, {}, 0);
    const Result one = run(whole, h, ops::all_experts_here(), saves);
    std::vector<Result> results(static_cast<size_t>(ranks));
    test::run_ranks(ranks, [&, ranks = ranks, saves = saves](comm::World& world) {
      Layer own(choice, {.dp_shard = ranks, .ep = ranks}, world.rank());
      std::vector<int> members(static_cast<size_t>(ranks));
      std::iota(members.begin(), members.end(), 0);
      const auto exchange = make_expert_exchange(world.group("ep", members));
      results[static_cast<size_t>(world.rank())] =
          run(own, h.narrow(0, world.rank() * choice.tokens, choice.tokens), *exchange, saves);
    });
    std::vector<Tensor> y, grad;
    for (const Result& result : results) y.push_back(result.y), grad.push_back(result.grad);
    EXPECT_CLOSE(at::cat(y), one.y, 1e-12);
    EXPECT_CLOSE(at::cat(grad), one.grad, 1e-12);
    for (size_t i = 0; i < one.weights.size(); ++i) {
      std::vector<Tensor> parts;
      for (const Result& result : results) parts.push_back(result.weights[i]);
      const bool stacked = one.weights[i].dim() == 3;
      const double limit = i == 0 ? 1e-6 : 1e-12;  // the norm's is summed in fp32
      EXPECT_CLOSE(stacked ? at::cat(parts) : at::stack(parts).sum(0), one.weights[i], limit);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExpertChoices,
                         testing::Values(Choice{"as_they_like", 9, 2}, Choice{"all_to_one_expert", 9, 1, {5}},
                                         Choice{"all_to_one_rank", 9, 2, {6, 7}},
                                         Choice{"fewer_tokens_than_experts", 3, 2}, Choice{"one_token_each", 1, 1},
                                         Choice{"every_expert", 2, kExperts}),
                         [](const auto& info) { return info.param.name; });

// The order of launches: rows of one are under way while the other computes and launches its own.
TEST(ExpertPairs, ComputeWhileRowsOfTheOtherTravel) {
  test::run_ranks(2, [](comm::World& world) {
    const auto exchange = make_expert_exchange(world.group("ep", {0, 1}));
    std::vector<std::string> order;
    const auto side = [&](const std::string& name) {
      return [&order, &exchange, name] {
        const Tensor counts = at::full({2}, 3, at::kInt);
        order.push_back(name + " routes");
        const ops::RowPlan plan = exchange->plan(counts)();
        order.push_back(name + " sends");
        const ops::Pending arriving = exchange->send(at::ones({6, 2}), plan);
        EXPECT_EQ(arriving().size(0), 6);
        order.push_back(name + " multiplies");
        exchange->send_back(at::ones({6, 2}), plan)();
        order.push_back(name + " has all");
      };
    };
    exchange->run_pair(side("F"), side("B"));
    EXPECT_EQ(order, (std::vector<std::string>{"F routes", "B routes", "F sends", "B sends", "F multiplies",
                                               "B multiplies", "F has all", "B has all"}));
    order.clear();
    side("alone")();
    EXPECT_EQ(order.back(), "alone has all");
  });
}

}  // namespace
}  // namespace titanium::parallel
