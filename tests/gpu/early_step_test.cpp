// Updates inside the backward on the GPU, with parameters there and in host memory.
#include "titanium/train/early_step.h"

#include "tests/gpu/gpu_test.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

using GpuEarlyStep = test::GpuTest;

std::vector<Tensor> train(const JobConfig& config, Device device, std::vector<double>& norms) {
  TrainState run = build_train_state(config, device);
  for (int64_t step = 0; step < config.training.steps; ++step) {
    norms.push_back(train_step(run)->grad_norm.item<double>());
  }
  std::vector<Tensor> values;
  for (const Parameter* parameter : run.parameters) values.push_back(parameter->value.detach().cpu());
  return values;
}

TEST_F(GpuEarlyStep, GivesTheBitsOfALateOne) {
  JobConfig config;
  config.training.local_batch_size = 2;
  config.training.seq_len = 256;
  config.training.steps = 4;
  config.training.max_norm = -1;
  config.lr_scheduler.warmup_steps = 2;
  config.metrics.enable_jsonl = false;
  config.debug.deterministic = true;
  struct Case {
    bool sharded, offloaded;
    const char *dtype, *optimizer;
  };
  for (const auto& [sharded, offloaded, dtype, optimizer] :
       {Case{false, false, "float32", "AdamW"}, Case{false, false, "bfloat16", "AdamW"},
        Case{true, false, "float32", "AdamW"}, Case{true, false, "bfloat16", "AdamW"},
        Case{true, true, "float32", "AdamW"}, Case{true, true, "bfloat16", "AdamW"},
        Case{true, false, "float32", "Muon"}, Case{true, true, "float32", "Muon"}}) {
    SCOPED_TRACE(testing::Message() << sharded << offloaded << " " << dtype << " " << optimizer);
    config.parallelism.fsdp_on_one_rank = sharded;
    config.training.enable_cpu_offload = offloaded;
    config.training.dtype = dtype;
    config.optimizer.name = optimizer;
    std::vector<double> late_norms, early_norms;
    config.optimizer.early_step_in_backward = false;
    const std::vector<Tensor> late = train(config, gpu_, late_norms);
    config.optimizer.early_step_in_backward = true;
    const std::vector<Tensor> early = train(config, gpu_, early_norms);
    for (size_t i = 0; i < late.size(); ++i) EXPECT_TRUE(early[i].equal(late[i])) << i;
    for (size_t i = 0; i < late_norms.size(); ++i) EXPECT_NEAR(early_norms[i], late_norms[i], 1e-9 * late_norms[i]);
  }
}

}  // namespace
}  // namespace titanium::train
