// Each family with experts on layouts of every kind: its attention, its experts and its dense layers together.
#include "tests/support/compare_runs.h"
#include "titanium/models/deepseek_v3/model.h"
#include "titanium/models/gpt_oss/model.h"
#include "titanium/models/llama4/model.h"
#include "titanium/models/qwen3/model.h"

namespace titanium::train {
namespace {

using test::configure;
using test::Layout;
using test::ModelMaker;
using test::Outcome;

template <typename Args>
Args tiny(Args args) {
  args.dim = 32;
  args.n_layers = 4;
  args.vocab_size = 2048;
  args.max_seq_len = test::tiny_config().training.seq_len;
  return args;
}

// 8 experts of 24 columns, of which two are chosen.
models::decoder::MoeArgs few(models::decoder::MoeArgs moe, int64_t top_k = 2) {
  moe.num_experts = 8;
  moe.top_k = top_k;
  moe.moe_hidden_dim = 24;
  return moe;
}

// The rules of the 671B: sigmoids, groups, normalised weights; inside documents.
std::unique_ptr<models::LanguageModel> deepseek_v3() {
  models::deepseek_v3::Args args = tiny(models::deepseek_v3::flavors().at("671B"));
  args.n_dense_layers = 1;
  args.inter_dim = 64;
  args.n_heads = 4;
  args.q_lora_rank = 16;
  args.kv_lora_rank = 16;
  args.qk_nope_head_dim = 8;
  args.qk_rope_head_dim = 4;
  args.v_head_dim = 8;
  args.moe = few(args.moe);
  args.moe.num_expert_groups = 4;
  args.moe.num_limited_groups = 2;
  return std::make_unique<models::deepseek_v3::DeepseekV3>(args);
}

std::unique_ptr<models::LanguageModel> qwen3() {
  models::qwen3::Args args = tiny(models::qwen3::flavors().at("debugmodel_moe"));
  args.n_heads = 4;
  args.n_kv_heads = 2;
  args.head_dim = 8;
  args.moe = few(*args.moe);
  return std::make_unique<models::qwen3::Qwen3>(args);
}

// Experts in every second layer, a layer without rope, chunks of 8 tokens.
std::unique_ptr<models::LanguageModel> llama4() {
  models::llama4::Args args = tiny(models::llama4::flavors().at("debugmodel_irope"));
  args.n_heads = args.n_kv_heads = 4;
  args.head_dim = 8;
  args.ffn_hidden_dim = 64;
  args.fixed_attn_block_size = 8;
  args.no_rope_layers = {0};
  args.moe = few(args.moe, 1);
  return std::make_unique<models::llama4::Llama4>(args);
}

// Sinks, windows of 5 tokens in every second layer, biases everywhere.
std::unique_ptr<models::LanguageModel> gpt_oss() {
  models::gpt_oss::Args args = tiny(models::gpt_oss::flavors().at("debugmodel"));
  args.n_heads = 4;
  args.n_kv_heads = 2;
  args.head_dim = 8;
  args.sliding_window_size = 5;
  args.moe = few(args.moe);
  return std::make_unique<models::gpt_oss::GptOss>(args);
}

struct Case {
  Layout layout;
  int64_t expert, expert_tensor = 1;
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.layout.name; }

Outcome train(const Case& tested, const ModelMaker& make_model) {
  JobConfig config = configure(tested.layout);
  config.parallelism.expert_parallel_degree = tested.expert;
  config.parallelism.expert_tensor_parallel_degree = tested.expert_tensor;
  config.training.steps = 6;
  return test::train(config, tested.layout.ranks(), make_model);
}

class ExpertFamilies : public testing::TestWithParam<Case> {
 protected:
  void expect_as_on_one_rank(const ModelMaker& make_model, const Outcome& one_rank) {
    // From the second step on, rounding may decide between two experts for a token, which its moments show.
    test::expect_same_run(train(GetParam(), make_model), one_rank, {.loss = 1e-5, .norm = 1e-4, .parameters = 0.1});
  }
};

TEST_P(ExpertFamilies, DeepseekV3) {
  static const Outcome one = train({{"one", 1, 1, 1}, 1}, deepseek_v3);
  expect_as_on_one_rank(deepseek_v3, one);
}
TEST_P(ExpertFamilies, Qwen3) {
  static const Outcome one = train({{"one", 1, 1, 1}, 1}, qwen3);
  expect_as_on_one_rank(qwen3, one);
}
TEST_P(ExpertFamilies, Llama4) {
  static const Outcome one = train({{"one", 1, 1, 1}, 1}, llama4);
  expect_as_on_one_rank(llama4, one);
}
TEST_P(ExpertFamilies, GptOss) {
  static const Outcome one = train({{"one", 1, 1, 1}, 1}, gpt_oss);
  expect_as_on_one_rank(gpt_oss, one);
}

void nothing(JobConfig&) {}
void recomputes(JobConfig& config) { config.activation_checkpoint.mode = "full"; }
void accumulates(JobConfig& config) { config.training.local_batch_size = 3; }
void with_schedule(JobConfig& config, const char* schedule, int64_t micro_batch) {
  config.parallelism.pipeline_parallel_schedule = schedule;
  config.parallelism.pipeline_parallel_microbatch_size = micro_batch;
}
void one_forward_one_backward(JobConfig& config) { with_schedule(config, "1F1B", 2); }
void interleaved(JobConfig& config) { with_schedule(config, "Interleaved1F1B", 1); }
void zbv(JobConfig& config) { with_schedule(config, "ZBVZeroBubble", 1); }
void dual_pipe_v(JobConfig& config) { with_schedule(config, "DualPipeV", 1); }

INSTANTIATE_TEST_SUITE_P(All, ExpertFamilies,
                         testing::Values(Case{{"ep2", 1, 2, 1, accumulates}, 2}, Case{{"ep4", 1, 4, 1}, 4},
                                         Case{{"fsdp2_ep2", 1, 4, 1, recomputes}, 2}, Case{{"hsdp2_ep2", 2, 2, 1}, 2},
                                         Case{{"tp2_ep2", 1, 2, 2}, 2}, Case{{"tp2_ep2_etp2", 1, 2, 2}, 2, 2},
                                         Case{{"cp2_ep2", 1, 1, 1, nothing, 2}, 2},
                                         Case{{"pp2_ep2", 1, 2, 1, one_forward_one_backward, 1, 2}, 2},
                                         Case{{"pp2_ep2_interleaved", 1, 2, 1, interleaved, 1, 2}, 2},
                                         Case{{"pp2_ep2_zbv", 1, 2, 1, zbv, 1, 2}, 2},
                                         Case{{"pp2_ep2_dual_pipe_v", 1, 2, 1, dual_pipe_v, 1, 2}, 2},
                                         Case{{"pp2_tp2_ep2", 1, 2, 2, one_forward_one_backward, 1, 2}, 2}),
                         [](const auto& info) { return info.param.layout.name; });

}  // namespace
}  // namespace titanium::train
