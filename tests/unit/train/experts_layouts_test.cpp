// Models with experts on every layout: expert parallelism with everything else.
#include "tests/support/compare_runs.h"
#include "tests/support/tiny_moe.h"

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

}  // namespace
}  // namespace titanium::train
