// Sharded training on one GPU, over NCCL with one rank. Several ranks: bench/distributed_gpu_check.sh.
#include "tests/gpu/gpu_test.h"
#include "titanium/comm/connect.h"
#include "titanium/comm/rendezvous/socket.h"
#include "titanium/parallel/data_parallel/fully_shard.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

class GpuSharding : public test::GpuTest {
 protected:
  std::shared_ptr<comm::World> nccl_world() const {
    comm::ConnectOptions options;
    options.environment.master_port = comm::listen_at("127.0.0.1", 0, comm::Reach::kThisMachine).port;
    options.device = gpu_;
    options.connect_groups_of_one = true;
    return comm::connect(options);
  }

  static JobConfig config() {
    JobConfig config;
    config.training.local_batch_size = 2;
    config.training.seq_len = 256;
    config.training.steps = 10;
    config.lr_scheduler.warmup_steps = 2;
    config.debug.deterministic = true;
    config.parallelism.fsdp_on_one_rank = true;
    return config;
  }

  std::vector<double> losses(const JobConfig& config, std::shared_ptr<comm::World> world) const {
    TrainState run = build_train_state(config, gpu_, std::move(world));
    std::vector<double> values;
    for (int64_t step = 0; step < config.training.steps; ++step) values.push_back(train_step(run)->loss.item<double>());
    return values;
  }

  void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double limit) const {
    for (size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(found[step], expected[step], limit * expected[step]) << "step " << step + 1;
    }
  }
};

TEST_F(GpuSharding, GivesTheLossesOfPlainTraining) {
  JobConfig plain = config();
  plain.parallelism.fsdp_on_one_rank = false;
  const std::vector<double> expected = losses(plain, nullptr);
  for (const char* policy : {"default", "always", "never"}) {
    JobConfig sharded = config();
    sharded.parallelism.fsdp_reshard_after_forward = policy;
    expect_near(losses(sharded, nccl_world()), expected, 1e-3);
  }
}

TEST_F(GpuSharding, OffloadedStatesGiveTheSameLosses) {
  JobConfig offloaded = config();
  offloaded.training.enable_cpu_offload = true;
  {
    const TrainState run = build_train_state(offloaded, gpu_, nccl_world());
    for (const Parameter* parameter : run.parameters)
      EXPECT_TRUE(parameter->value.is_cpu() && parameter->value.is_pinned());
  }
  expect_near(losses(offloaded, nccl_world()), losses(config(), nccl_world()), 1e-3);
}

TEST_F(GpuSharding, AccumulationGivesTheSameLossesHoweverItIsReduced) {
  JobConfig accumulating = config();
  accumulating.training.global_batch_size = 8;
  JobConfig once = accumulating;
  once.parallelism.fsdp_reduce_once = true;
  expect_near(losses(once, nccl_world()), losses(accumulating, nccl_world()), 1e-3);
}

TEST_F(GpuSharding, AStepNeverWaitsForTheDeviceAndTakesNoMemoryAfterTheFirst) {
  JobConfig sharded = config();
  sharded.debug.deterministic = false;
  TrainState run = build_train_state(sharded, gpu_, nccl_world());
  for (int i = 0; i < 3; ++i) train_step(run);  // first steps load kernels and plans
  synchronize_gpu();
  const auto& sharding = dynamic_cast<const parallel::FullyShard&>(*run.parallelism.data_parallel);
  const int64_t buffers = sharding.context().pool.bytes();
  {
    const ForbidGpuWaits no_waits;
    EXPECT_NO_THROW(train_step(run));
  }
  EXPECT_EQ(sharding.context().pool.bytes(), buffers);
  EXPECT_LE(sharding.context().most_whole_units, 2);
}

}  // namespace
}  // namespace titanium::train
