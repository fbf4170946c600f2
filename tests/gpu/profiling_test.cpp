// Traces, memory snapshots and NCCL's part of flight dumps.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/gpu/gpu_test.h"
#include "tests/support/source_folder.h"
#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"
#include "titanium/comm/connect.h"
#include "titanium/comm/rendezvous/socket.h"
#include "titanium/train/flight/analysis.h"
#include "titanium/train/flight/dump.h"
#include "titanium/train/memory_snapshots.h"
#include "titanium/train/profiler.h"
#include "titanium/train/trainer.h"

namespace titanium::train {
namespace {

class ProfilingGpu : public test::GpuTest {
 protected:
  JobConfig config() const {
    JobConfig config;
    config.job.dump_folder = folder_;
    config.profiling = {.enable_profiling = true,
                        .profile_freq = 2,
                        .profiler_active = 1,
                        .profiler_warmup = 1,
                        .enable_memory_snapshot = true};
    return config;
  }
  checkpoint::PickleValue read_snapshot(const std::string& iteration) const {
    const std::string bytes =
        read_file(folder_ / "memory_snapshot" / iteration / "rank0_memory_snapshot.pickle", "memory snapshot");
    return checkpoint::read_pickle(std::as_bytes(std::span(bytes)), "memory snapshot");
  }

  const std::filesystem::path folder_ = test::test_folder();
};

bool any_event(const nlohmann::json& trace, const std::string& category, const std::string& name) {
  return std::ranges::any_of(trace["traceEvents"], [&](const auto& event) {
    return event.value("cat", "") == category && event.value("name", "").find(name) != std::string::npos;
  });
}

TEST_F(ProfilingGpu, KernelsAndRangesAreInTheTrace) {
  const Tensor x = at::ones({256, 256}, at::TensorOptions(gpu_));
  Profiler profiler(config(), gpu_, /*rank=*/0, /*world_size=*/1, /*finished_steps=*/0);
  for (int64_t step = 1; step <= 3; ++step) {
    {
      const TraceScope scope("product");
      at::mm(x, x);
    }
    profiler.after_step(step);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "profile_traces/iteration_1"));
  std::ifstream file(folder_ / "profile_traces/iteration_2/rank0_trace.json");
  const auto trace = nlohmann::json::parse(file);
  EXPECT_TRUE(any_event(trace, "kernel", ""));
  EXPECT_TRUE(any_event(trace, "cuda_runtime", "LaunchKernel"));
  EXPECT_TRUE(any_event(trace, "cpu_op", "aten::mm"));
  EXPECT_TRUE(any_event(trace, "user_annotation", "ProfilerStep#2"));
  EXPECT_TRUE(any_event(trace, "user_annotation", "product"));
}

TEST_F(ProfilingGpu, ASnapshotHasSegmentsAndHistory) {
  const MemorySnapshots snapshots(config(), gpu_, /*rank=*/0);
  const Tensor x = at::empty({1 << 20}, at::TensorOptions(gpu_));
  snapshots.after_step(1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "memory_snapshot"));
  snapshots.after_step(2);
  const checkpoint::PickleValue snapshot = read_snapshot("iteration_2");
  EXPECT_FALSE(snapshot.at("segments").items().empty());
  const auto is_allocation = [](const checkpoint::PickleValue& entry) {
    return entry.at("action").as_string() == "alloc" && entry.at("size").as_int() >= 4 << 20;
  };
  EXPECT_TRUE(std::ranges::any_of(snapshot.at("device_traces").items()[0].items(), is_allocation));
}

TEST_F(ProfilingGpu, ASnapshotIsWrittenWhenMemoryIsOut) {
  const std::string root = source_folder().string();
  const std::vector<std::string> options = {"--job.config_file=" + root + "/configs/llama3/debug_model.toml",
                                            "--model.hf_assets_path=" + root + "/tests/assets/tokenizer",
                                            "--training.dataset_path=" + root + "/tests/assets/c4_test",
                                            "--training.seq_len=128",
                                            "--job.dump_folder=" + folder_.string(),
                                            "--profiling.enable_memory_snapshot"};
  const std::atomic<bool> stop = false;
  const auto ask_for_too_much = [&](TrainState& run) { at::empty({int64_t{1} << 50}, at::TensorOptions(run.device)); };
  EXPECT_THROW(train(config::load_config(options), {stop, [](const std::string&) {}, ask_for_too_much}),
               c10::OutOfMemoryError);
  EXPECT_FALSE(read_snapshot("iteration_0_exit").at("segments").items().empty());
}

TEST_F(ProfilingGpu, CollectivesOfNcclAreInTheDumpAsTheDeviceHasThem) {
  comm::flight_recorder().set_capacity(1000);  // without what tests before it have left there
  comm::ConnectOptions options;
  options.environment.master_port = comm::listen_at("127.0.0.1", 0, comm::Reach::kThisMachine).port;
  options.device = gpu_;
  options.connect_groups_of_one = true;
  const auto world = comm::connect(options);
  const auto group = world->group("fsdp", {0});
  const Tensor x = at::ones({4}, at::TensorOptions(gpu_));
  group->all_reduce(x, comm::Reduce::kSum)->wait();
  synchronize_gpu();
  write_flight_dumps(comm::flight_recorder(), folder_ / "rank_");
  const Flights flights = read_flight_dumps(folder_);
  ASSERT_EQ(flights.size(), 1U);
  const auto& entries = flights.at(0).entries;
  const auto reduced = std::ranges::find(entries, "all_reduce of [4] Float", &FlightEntry::operation);
  ASSERT_NE(reduced, entries.end());
  EXPECT_EQ(reduced->group, "fsdp nccl");
  EXPECT_EQ(reduced->axis, "fsdp");
  EXPECT_EQ(reduced->state, "completed");
  EXPECT_EQ(reduced->step, 0);  // c10d's entry, not ours
}

}  // namespace
}  // namespace titanium::train
