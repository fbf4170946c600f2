// Muon on the GPU against the CPU.
#include "titanium/optim/muon.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include "tests/gpu/gpu_test.h"
#include "titanium/train/train_step.h"

namespace titanium::optim {
namespace {

using GpuMuon = test::GpuTest;

// Five clipped steps from the same values with the same gradients.
Tensor trained(const Shape& shape, Device device, Dtype dtype, double bad_norm = 0) {
  at::manual_seed(4);
  Parameter parameter("layers.0.w", shape);
  parameter.materialize(at::kFloat, device);
  parameter.value.detach().copy_(test::random_tensor(shape));
  Muon muon({{{&parameter}, {.newton_schulz = {.dtype = dtype}}}});
  muon.materialize();
  for (int step = 0; step < 5; ++step) {
    parameter.grad = test::random_tensor(shape).to(device);
    muon.step(0.1, at::scalar_tensor(4.0, at::kDouble).to(device), 1.0);
  }
  if (bad_norm != 0) {
    parameter.grad = at::full(shape, bad_norm, parameter.grad.options());
    muon.step(0.1, at::scalar_tensor(bad_norm, at::kDouble).to(device), 1.0);
  }
  return parameter.value.detach().cpu();
}

TEST_F(GpuMuon, AgreesWithTheCpu) {
  for (const Shape& shape : {Shape{128, 384}, {384, 128}, {3, 96, 64}}) {
    EXPECT_CLOSE(trained(shape, gpu_, at::kFloat), trained(shape, at::kCPU, at::kFloat), 1e-4);
    EXPECT_CLOSE(trained(shape, gpu_, at::kBFloat16), trained(shape, at::kCPU, at::kFloat), 5e-2);
  }
}

TEST_F(GpuMuon, NothingChangesWhenTheNormIsNotFinite) {
  const Tensor before = trained({64, 96}, gpu_, at::kBFloat16);
  for (const double norm : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(trained({64, 96}, gpu_, at::kBFloat16, norm).equal(before));
  }
}

TEST_F(GpuMuon, AStepNeverWaitsForTheDeviceAndThePlanIsWhatTheAllocatorCounts) {
  JobConfig config;
  config.model.flavor = "1B";
  config.training.local_batch_size = 1;
  config.training.seq_len = 512;
  config.metrics.enable_jsonl = false;
  config.optimizer.name = "Muon";
  const int64_t planned = train::plan_model(config).memory.total(), before = gpu_memory(0).active;
  train::TrainState run = train::build_train_state(config, gpu_);
  for (int i = 0; i < 2; ++i) train::train_step(run);
  reset_peak_gpu_memory(0);
  synchronize_gpu();
  {
    const ForbidGpuWaits no_waits;
    EXPECT_NO_THROW(train::train_step(run));
  }
  synchronize_gpu();
  EXPECT_NEAR(static_cast<double>(gpu_memory(0).max_active - before), static_cast<double>(planned), 0.03 * planned);
}

}  // namespace
}  // namespace titanium::optim
