// Traces one training step on the GPU with Kineto, for bench/trace_gaps.py.
//
//   bench_step_trace <trace.json> [options of titanium train]
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdio>

#include "titanium/comm/connect.h"
#include "titanium/config/load_config.h"
#include "titanium/tensor/cuda_backend.h"
#include "titanium/train/train_step.h"

namespace {

using namespace titanium;
using namespace torch::autograd::profiler;

std::shared_ptr<comm::World> one_rank_world(const JobConfig& config, Device device) {
  if (!config.parallelism.fsdp_on_one_rank) return nullptr;
  comm::ConnectOptions options;
  options.device = device;
  options.connect_groups_of_one = true;
  return comm::connect(options);
}

void trace_step(train::TrainState& run, const char* path) {
  constexpr int kUntraced = 4;
  for (int i = 0; i < kUntraced; ++i) train::train_step(run);
  synchronize_cuda();
  const std::set<ActivityType> activities = {ActivityType::CPU, ActivityType::CUDA};
  const ProfilerConfig config(ProfilerState::KINETO);
  prepareProfiler(config, activities);
  enableProfiler(config, activities);
  // Three, so that the one in the middle begins and ends among other work.
  for (int i = 0; i < 3; ++i) train::train_step(run);
  synchronize_cuda();
  disableProfiler()->save(path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || cuda_device_count() == 0) {
    std::fputs("usage: bench_step_trace <trace.json> [options]; needs a GPU\n", stderr);
    return 2;
  }
  const config::LoadedConfig loaded = config::load_config(std::vector<std::string>(argv + 2, argv + argc));
  const Device device = parse_device("cuda", 0);
  train::TrainState run = train::build_train_state(loaded.config, device, one_rank_world(loaded.config, device));
  trace_step(run, argv[1]);
  return 0;
}
