#include "titanium/train/train_step.h"

#include "tests/gpu/gpu_test.h"

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
        const int64_t planned = plan_model(config).memory.total(), before = gpu_memory(0).active;
        TrainState run = build_train_state(config, gpu_);
        train_step(run);
        reset_peak_gpu_memory(0);
        train_step(run);
        synchronize_gpu();
        const int64_t counted = gpu_memory(0).max_active - before;
        EXPECT_NEAR(static_cast<double>(counted), static_cast<double>(planned), 0.03 * planned);
      }
    }
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
