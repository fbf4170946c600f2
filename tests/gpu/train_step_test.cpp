#include "titanium/train/train_step.h"

#include <fstream>

#include "tests/gpu/gpu_test.h"
#include "tests/support/source_folder.h"
#include "tests/support/test_folder.h"
#include "titanium/ops/gpu_kernels.h"

namespace titanium::train {
namespace {

using GpuTraining = test::GpuTest;

JobConfig debug_config() {
  JobConfig config;
  config.training.local_batch_size = 2;
  config.training.seq_len = 256;
  config.training.steps = 20;
  config.lr_scheduler.warmup_steps = 2;
  config.metrics.enable_jsonl = false;
  return config;
}

std::vector<double> losses(const JobConfig& config, Device device) {
  TrainState run = build_train_state(config, device);
  std::vector<double> values;
  for (int64_t step = 0; step < config.training.steps; ++step) values.push_back(train_step(run)->loss.item<double>());
  return values;
}

TEST_F(GpuTraining, LossesAgreeWithTheCpu) {
  const std::vector<double> gpu = losses(debug_config(), gpu_), cpu = losses(debug_config(), at::kCPU);
  for (size_t step = 0; step < gpu.size(); ++step)
    EXPECT_NEAR(gpu[step], cpu[step], 5e-3 * cpu[step]) << "step " << step + 1;
  EXPECT_LT(gpu.back(), gpu.front() - 1);
}

TEST_F(GpuTraining, LossesInFloatAgreeWithTheCpu) {
  JobConfig config = debug_config();
  config.training.mixed_precision_param = "float32";
  config.training.steps = 5;
  const std::vector<double> gpu = losses(config, gpu_), cpu = losses(config, at::kCPU);
  for (size_t step = 0; step < gpu.size(); ++step)
    EXPECT_NEAR(gpu[step], cpu[step], 1e-4 * cpu[step]) << "step " << step + 1;
}

TEST_F(GpuTraining, LossesInsideDocumentsAgreeWithTheCpu) {
  JobConfig config = debug_config();
  config.model.flavor = "debugmodel_varlen_attn";
  config.training.steps = 5;
  const std::vector<double> gpu = losses(config, gpu_), cpu = losses(config, at::kCPU);
  for (size_t step = 0; step < gpu.size(); ++step)
    EXPECT_NEAR(gpu[step], cpu[step], 5e-3 * cpu[step]) << "step " << step + 1;
}

TEST_F(GpuTraining, DeterministicRunsAreBitEqualInEveryCheckpointMode) {
  JobConfig config = debug_config();
  config.debug.deterministic = true;
  config.training.steps = 5;
  config.activation_checkpoint.mode = "none";
  const std::vector<double> first = losses(config, gpu_);
  EXPECT_EQ(losses(config, gpu_), first);
  config.activation_checkpoint.mode = "full";
  EXPECT_EQ(losses(config, gpu_), first);
}

void expect_plan_holds(const JobConfig& config, Device gpu) {
  const int64_t planned = plan_model(config).memory.total(), before = gpu_memory(0).active;
  TrainState run = build_train_state(config, gpu);
  train_step(run);
  reset_peak_gpu_memory(0);
  train_step(run);
  synchronize_gpu();
  const int64_t counted = gpu_memory(0).max_active - before;
  EXPECT_NEAR(static_cast<double>(counted), static_cast<double>(planned), 0.03 * planned);
}

TEST_F(GpuTraining, ThePlanIsWhatTheAllocatorCounts) {
  JobConfig config = debug_config();
  config.model.flavor = "1B";
  config.training.local_batch_size = 4;
  config.training.seq_len = 2048;
  for (const char* dtype : {"bfloat16", "float32"}) {
    for (const char* mode : {"none", "selective", "full"}) {
      for (const int64_t micro_batches : {1, 2}) {
        SCOPED_TRACE(testing::Message() << dtype << ", " << mode << ", " << micro_batches << " micro-batches");
        config.training.dtype = dtype;
        config.training.global_batch_size = 4 * micro_batches;
        config.activation_checkpoint.mode = mode;
        expect_plan_holds(config, gpu_);
      }
    }
  }
}

// One layer of 64 large experts for few tokens: copies of two of its weights in float8 are a fifteenth of the memory.
TEST_F(GpuTraining, ThePlanOfExpertsInFloat8IsWhatTheAllocatorCounts) {
  if (!ops::has_grouped_multiply()) GTEST_SKIP() << "the GPU is not of compute capability 9.0";
  const std::filesystem::path folder = test::test_folder();
  std::filesystem::copy(source_folder() / "tests/assets/tokenizer", folder, std::filesystem::copy_options::recursive);
  std::ofstream(folder / "config.json") << R"({"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 2,
      "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 2048, "moe_intermediate_size": 1408,
      "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 4096,
      "rms_norm_eps": 1e-5, "rope_theta": 1e4, "max_position_embeddings": 4096, "scoring_func": "softmax",
      "topk_method": "greedy", "norm_topk_prob": false, "routed_scaling_factor": 1.0, "hidden_act": "silu"})";
  JobConfig config = debug_config();
  config.model = {.name = "deepseek_v3", .flavor = "auto", .hf_assets_path = folder};
  config.model.converters = {"quantize.grouped_mm.float8"};
  config.quantize.grouped_mm.float8.fqns = {"experts"};
  config.training.dtype = "bfloat16";
  config.training.seq_len = 512;
  config.training.local_batch_size = 1;
  config.activation_checkpoint.mode = "none";
  for (const int64_t micro_batches : {1, 2}) {
    SCOPED_TRACE(testing::Message() << micro_batches << " micro-batches");
    config.training.global_batch_size = micro_batches;
    expect_plan_holds(config, gpu_);
  }
}

TEST_F(GpuTraining, AStepNeverWaitsForTheDevice) {
  TrainState run = build_train_state(debug_config(), gpu_);
  for (int i = 0; i < 3; ++i) train_step(run);  // first steps load kernels and plans
  synchronize_gpu();
  const ForbidGpuWaits no_waits;
  EXPECT_NO_THROW(train_step(run));
}

}  // namespace
}  // namespace titanium::train
