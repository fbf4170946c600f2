#include "titanium/train/inference/load_model.h"

#include "tests/support/test_folder.h"

namespace titanium::train {
namespace {

TEST(CheckpointRun, AGpuDrawsInThePrecisionOfTraining) {
  const auto checkpoint = test::test_folder();
  const auto precision = [&](const std::vector<std::string>& options, Device device) {
    const config::LoadedConfig loaded = config::load_config(options);
    CheckpointRun run = plan_checkpoint_run(loaded, checkpoint);
    compute_as_in_training(run, loaded, device);
    return std::pair(run.config.training.mixed_precision_param, run.config.training.dtype);
  };
  using Precision = std::pair<std::string, std::string>;
  const Device gpu(at::kCUDA, 0), cpu(at::kCPU);
  EXPECT_EQ(precision({}, gpu), Precision("bfloat16", "bfloat16"));
  EXPECT_EQ(precision({}, cpu), Precision("float32", "float32"));
  EXPECT_EQ(precision({"--training.mixed_precision_param=float32"}, gpu), Precision("float32", "float32"));
  EXPECT_EQ(precision({"--training.mixed_precision_param=bfloat16"}, cpu), Precision("bfloat16", "float32"));
  EXPECT_EQ(precision({"--training.dtype=float32"}, gpu), Precision("bfloat16", "float32"));
}

}  // namespace
}  // namespace titanium::train
