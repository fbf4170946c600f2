// Models with experts on every layout: expert parallelism with everything else.
#include <cmath>
#include <mutex>

#include "tests/support/compare_runs.h"
#include "tests/support/tiny_moe.h"
#include "titanium/train/report/expert_balance.h"

namespace titanium::train {
namespace {

using test::configure;
using test::Layout;
using test::Outcome;
using test::tiny_moe;
using test::TinyMoeArgs;

struct Experts {
  Layout layout;
  int64_t expert = 1, expert_tensor = 1;
};

void PrintTo(const Experts& tested, std::ostream* out) { *out << tested.layout.name; }

JobConfig configure_experts(const Experts& tested) {
  JobConfig config = configure(tested.layout);
  config.parallelism.expert_parallel_degree = tested.expert;
  config.parallelism.expert_tensor_parallel_degree = tested.expert_tensor;
  config.training.steps = 6;
  return config;
}

TinyMoeArgs deepseek() { return tiny_moe(); }
TinyMoeArgs llama4() {
  TinyMoeArgs args = tiny_moe();
  args.top_k = 1;
  args.route_norm = false;
  args.score_before_experts = true;
  return args;
}
TinyMoeArgs gpt_oss() {
  TinyMoeArgs args = tiny_moe();
  args.num_shared_experts = 0;
  args.score_func = "softmax";
  args.gate_bias = args.clamped_swiglu = true;
  return args;
}

Outcome train(const Experts& tested, const TinyMoeArgs& args) {
  return test::train(configure_experts(tested), tested.layout.ranks(), test::tiny_moe_maker(args));
}

class ExpertLayouts : public testing::TestWithParam<Experts> {};

TEST_P(ExpertLayouts, TrainAsOneRankDoes) {
  static const Outcome plain = train({{"one", 1, 1, 1}}, deepseek()), weighed = train({{"one", 1, 1, 1}}, llama4()),
                       biased = train({{"one", 1, 1, 1}}, gpt_oss());
  const Experts& tested = GetParam();
  test::expect_same_run(train(tested, deepseek()), plain, 1e-5);
  test::expect_same_run(train(tested, llama4()), weighed, 1e-5);
  test::expect_same_run(train(tested, gpt_oss()), biased, 1e-5);
}

void recomputes(JobConfig& config) { config.activation_checkpoint.mode = "full"; }
void recomputes_half(JobConfig& config) {
  config.activation_checkpoint.mode = "selective";
  config.activation_checkpoint.selective_ac_option = "op";
}
void accumulates(JobConfig& config) { config.training.local_batch_size = 3; }
template <int kStagesPerRank>
void with_schedule(JobConfig& config, const char* schedule) {
  config.parallelism.pipeline_parallel_schedule = schedule;
  config.parallelism.pipeline_parallel_microbatch_size = kStagesPerRank == 1 ? 2 : 1;
}
void one_forward_one_backward(JobConfig& config) { with_schedule<1>(config, "1F1B"); }
void interleaved(JobConfig& config) { with_schedule<2>(config, "Interleaved1F1B"); }
void zbv(JobConfig& config) { with_schedule<2>(config, "ZBVZeroBubble"); }
void dual_pipe_v(JobConfig& config) { with_schedule<2>(config, "DualPipeV"); }
void nothing(JobConfig&) {}

INSTANTIATE_TEST_SUITE_P(
    All, ExpertLayouts,
    testing::Values(Experts{{"fsdp2", 1, 2, 1}}, Experts{{"ddp2", 2, 1, 1}}, Experts{{"tp2", 1, 1, 2}},
                    Experts{{"full", 1, 1, 1, recomputes}}, Experts{{"half", 1, 1, 1, recomputes_half}},
                    Experts{{"ep2", 1, 2, 1}, 2}, Experts{{"ep4", 1, 4, 1}, 4}, Experts{{"fsdp2_ep2", 1, 4, 1}, 2},
                    Experts{{"hsdp2_ep2", 2, 2, 1}, 2}, Experts{{"tp2_ep2", 1, 2, 2}, 2},
                    Experts{{"tp2_ep4", 1, 2, 2}, 4}, Experts{{"tp2_ep2_etp2", 1, 2, 2}, 2, 2},
                    Experts{{"cp2_ep2", 1, 1, 1, nothing, 2}, 2}, Experts{{"fsdp2_cp2_ep4", 1, 2, 1, nothing, 2}, 4},
                    Experts{{"ep2_full", 1, 2, 1, recomputes}, 2}, Experts{{"ep2_half", 1, 2, 1, recomputes_half}, 2},
                    Experts{{"ep2_accumulates", 1, 2, 1, accumulates}, 2},
                    Experts{{"pp2_ep2", 1, 2, 1, one_forward_one_backward, 1, 2}, 2},
                    Experts{{"pp2_ep2_interleaved", 1, 2, 1, interleaved, 1, 2}, 2},
                    Experts{{"pp2_ep2_zbv", 1, 2, 1, zbv, 1, 2}, 2},
                    Experts{{"pp2_ep2_dual_pipe_v", 1, 2, 1, dual_pipe_v, 1, 2}, 2},
                    Experts{{"pp2_tp2_ep2", 1, 2, 2, one_forward_one_backward, 1, 2}, 2}),
    [](const auto& info) { return info.param.layout.name; });

void reshards(JobConfig& config) { config.parallelism.fsdp_reshard_after_forward = "always"; }

// Rows of a pair's forward travel while its backward computes, and the other way round, with the same bits; also where
// weights are gathered around each use.
TEST(ExpertPairs, TrainWithTheBitsOfOneAfterTheOther) {
  using Change = void (*)(JobConfig&);
  for (const auto& [tensor, change] : {std::pair<int, Change>{1, nothing}, {1, reshards}, {2, nothing}}) {
    const auto run = [&, tensor = tensor, change = change](bool overlap) {
      const auto changes = [&](JobConfig& config) {
        dual_pipe_v(config);
        change(config);
        config.parallelism.pipeline_parallel_expert_parallel_overlap = overlap;
      };
      return train({{"pp2", 1, 2, tensor, changes, 1, 2}, 2}, deepseek());
    };
    const Outcome by_turns = run(true), one_by_one = run(false);
    EXPECT_EQ(by_turns.losses, one_by_one.losses);
    EXPECT_EQ(by_turns.norms, one_by_one.norms);
    for (const auto& [name, tensor_of] : one_by_one.final) EXPECT_TRUE(at::equal(by_turns.final.at(name), tensor_of));
  }
}

// The largest difference of the moments of experts, because losses of so small a model hardly depend on them.
double difference_of_experts(const Outcome& a, const Outcome& b) {
  double largest = 0;
  for (const char* weight : {"w1", "w2", "w3"}) {
    const std::string name = fmt::format("layers.2.moe.experts.{}.exp_avg", weight);
    largest = std::max(largest, test::relative_error(a.final.at(name), b.final.at(name)));
  }
  return largest;
}

// Rows of an expert that are on several ranks have scales of their own for the gradient of its weight.
TEST(ExpertFloat8, TrainsOnLayoutsAsOnOneRank) {
  TinyMoeArgs args = deepseek();
  args.moe_hidden_dim = 32;
  for (const std::string converter : {"quantize.grouped_mm.float8", "quantize.grouped_mm.mx"}) {
    const auto quantised = [&](void (*change)(JobConfig&)) {
      return [=](JobConfig& config) {
        change(config);
        config.model.converters = {converter};
        config.quantize.grouped_mm.float8 = {.fqns = {"experts"}, .emulate = true};
        config.quantize.grouped_mm.mx = {.fqns = {"experts"}, .emulate = true};
      };
    };
    const Outcome one = train({{"one", 1, 1, 1, quantised(nothing)}}, args);
    EXPECT_GT(difference_of_experts(one, train({{"plain", 1, 1, 1}}, args)), 1e-2);
    for (const Experts& tested :
         {Experts{{"ep2", 1, 2, 1, quantised(nothing)}, 2}, Experts{{"fsdp2_ep2", 1, 4, 1, quantised(recomputes)}, 2},
          Experts{{"tp2_ep4", 1, 2, 2, quantised(nothing)}, 4}, Experts{{"cp2_ep2", 1, 1, 1, quantised(nothing), 2}, 2},
          Experts{{"pp2_ep2_zbv", 1, 2, 1, quantised(zbv), 1, 2}, 2}}) {
      SCOPED_TRACE(converter + " " + tested.layout.name);
      const Outcome outcome = train(tested, args);
      for (size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(outcome.losses[i], one.losses[i], 1e-5 * one.losses[i]);
      EXPECT_LT(difference_of_experts(outcome, one), 2e-3);
    }
  }
}

void with_losses(JobConfig& config) {
  config.training.moe_balance_loss = 0.5;
  config.training.moe_z_loss = 0.1;
}

// Sequences are whole, shared by ranks, or cut into rows in the middle.
TEST(RouterLosses, AreTheSameOnEveryLayout) {
  const Outcome one = train({{"one", 1, 1, 1, with_losses}}, deepseek());
  EXPECT_NE(one.norms.front(), train({{"one", 1, 1, 1}}, deepseek()).norms.front());
  for (const Experts& tested :
       {Experts{{"tp2", 1, 1, 2, with_losses}}, Experts{{"ep2", 1, 2, 1, with_losses}, 2},
        Experts{{"tp2_ep4", 1, 2, 2, with_losses}, 4}, Experts{{"tp2_ep2_etp2", 1, 2, 2, with_losses}, 2, 2},
        Experts{{"cp2_ep2", 1, 1, 1, with_losses, 2}, 2}}) {
    SCOPED_TRACE(tested.layout.name);
    test::expect_same_run(train(tested, deepseek()), one, 1e-5);
  }
}

// One step on any layout: the bias of each layer, and the tokens that it was moved by.
struct Balance {
  std::map<int64_t, Tensor> bias, tokens;
  Tensor measured;
};

Balance balance_after_a_step(const Experts& tested) {
  Balance balance;
  std::mutex mutex;
  test::run_ranks(tested.layout.ranks(), [&](comm::World& world) {
    TrainState run = test::build_run(configure_experts(tested), test::tiny_moe_maker(deepseek())(), world);
    train_step(run).value();
    const auto [blocks, tokens_LE] = run.model->expert_loads();
    const Tensor measured = measure_expert_balance(*run.model, *run.mesh, at::kCPU);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int64_t layer = blocks[i];
      balance.tokens[layer] = tokens_LE[static_cast<int64_t>(i)].clone();
      for (const nn::Buffer* buffer : run.model->buffers()) {
        if (buffer->fqn == fmt::format("layers.{}.moe.expert_bias", layer)) balance.bias[layer] = buffer->value.clone();
        if (buffer->fqn == fmt::format("layers.{}.moe.tokens_per_expert", layer)) {
          EXPECT_EQ(buffer->value.sum().item<int64_t>(), 0);
        }
      }
    }
    balance.measured = measured;
  });
  return balance;
}

TEST(ExpertBalance, MovesTheBiasAgainstTheLoadOfAllRanks) {
  const Balance one = balance_after_a_step({{"one", 1, 1, 1}});
  ASSERT_EQ(one.tokens.size(), 3U);
  const test::TinyMoeArgs args = deepseek();
  for (const auto& [layer, tokens] : one.tokens) {
    EXPECT_EQ(tokens.sum().item<int64_t>(), 12 * 32 * args.top_k);
    const double mean = static_cast<double>(12 * 32 * args.top_k) / static_cast<double>(args.num_experts);
    double centre = 0;
    std::vector<double> moves;
    for (int64_t e = 0; e < args.num_experts; ++e) {
      const auto load = tokens[e].item<double>();
      moves.push_back(load < mean ? 1 : load > mean ? -1 : 0);
      centre += moves.back() / static_cast<double>(args.num_experts);
    }
    for (int64_t e = 0; e < args.num_experts; ++e) {
      const double expected = args.load_balance_coeff * (moves[static_cast<size_t>(e)] - centre);
      EXPECT_NEAR(one.bias.at(layer)[e].item<double>(), expected, 1e-9);
    }
  }
  for (const Experts& tested :
       {Experts{{"tp2", 1, 1, 2}}, Experts{{"tp2_ep4", 1, 2, 2}, 4}, Experts{{"tp2_ep2_etp2", 1, 2, 2}, 2, 2},
        Experts{{"cp2_ep2", 1, 1, 1, nothing, 2}, 2}, Experts{{"full", 1, 2, 1, recomputes}, 2},
        Experts{{"accumulates", 1, 2, 1, accumulates}},
        Experts{{"pp2_ep2", 1, 2, 1, one_forward_one_backward, 1, 2}, 2}}) {
    SCOPED_TRACE(tested.layout.name);
    const Balance other = balance_after_a_step(tested);
    ASSERT_EQ(other.tokens.size(), one.tokens.size());
    for (const auto& [layer, tokens] : one.tokens) {
      EXPECT_TRUE(at::equal(other.tokens.at(layer), tokens)) << layer;
      EXPECT_TRUE(at::equal(other.bias.at(layer), one.bias.at(layer))) << layer;
    }
    EXPECT_TRUE(at::equal(other.measured, one.measured));
  }
}

TEST(ExpertBalance, IsMeasuredByItsDefinition) {
  const Balance one = balance_after_a_step({{"one", 1, 1, 1}});
  const std::vector<ExpertBalance> layers = read_expert_balance(one.measured);
  ASSERT_EQ(layers.size(), 3U);
  for (const ExpertBalance& layer : layers) {
    const Tensor tokens = one.tokens.at(layer.layer).to(at::kDouble);
    double entropy = 0;
    int64_t dead = 0;
    for (int64_t e = 0; e < tokens.size(0); ++e) {
      const double share = (tokens[e] / tokens.sum()).item<double>();
      dead += share == 0;
      if (share > 0) entropy -= share * std::log(share) / std::log(8.0);
    }
    EXPECT_NEAR(layer.max_over_mean, (tokens.max() / tokens.mean()).item<double>(), 1e-12);
    EXPECT_NEAR(layer.entropy, entropy, 1e-12);
    EXPECT_EQ(layer.dead, dead);
  }
}

}  // namespace
}  // namespace titanium::train
