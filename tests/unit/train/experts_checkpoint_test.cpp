// A run with experts that goes from layout to layout through its checkpoints.
#include "tests/support/compare_runs.h"
#include "tests/support/test_folder.h"
#include "tests/support/tiny_moe.h"
#include "titanium/train/checkpointer.h"

namespace titanium::train {
namespace {

using test::Layout;

struct Stop {
  Layout layout;
  int64_t expert = 1, expert_tensor = 1;
};

void dual_pipe_v(JobConfig& config) {
  config.parallelism.pipeline_parallel_schedule = "DualPipeV";
  config.parallelism.pipeline_parallel_microbatch_size = 1;
}
void nothing(JobConfig&) {}

JobConfig saving_config(const Stop& stop, const std::filesystem::path& folder) {
  JobConfig config = test::configure(stop.layout);
  config.parallelism.expert_parallel_degree = stop.expert;
  config.parallelism.expert_tensor_parallel_degree = stop.expert_tensor;
  config.job.dump_folder = folder.string();
  config.checkpoint.enable = true;
  config.checkpoint.interval = 2;
  config.checkpoint.last_save_model_only = false;
  config.training.steps = 100;
  return config;
}

// All tensors of a run, whole: parameters, moments and the bias of each layer.
using Tensors = std::map<std::string, Tensor>;

Tensors empty_tensors() {
  Tensors tensors;
  for (const auto model = test::tiny_moe_maker(test::tiny_moe())(); const Parameter* parameter : model->parameters()) {
    for (const char* kind : {"", ".exp_avg", ".exp_avg_sq"}) {
      tensors[parameter->fqn + kind] = at::full(parameter->global_shape, NAN);
    }
  }
  for (int layer : {1, 2, 3}) tensors[fmt::format("layers.{}.moe.expert_bias", layer)] = at::full({8}, NAN);
  return tensors;
}

void store(const TrainState& run, Tensors& tensors) {
  static std::mutex storing;  // ranks hold the same bias
  const std::lock_guard lock(storing);
  test::store_shards(run.parameters, tensors);
  test::store_moments(*run.optimizer, tensors);
  for (const nn::Buffer* buffer : run.model->buffers()) {
    if (buffer->is_persistent) tensors.at(buffer->fqn).copy_(buffer->value);
  }
}

struct Leg {
  Tensors begin = empty_tensors(), end = empty_tensors();
  std::map<int64_t, double> losses;
};

Leg train_until(const JobConfig& config, int ranks, int64_t until) {
  Leg leg;
  test::run_ranks(ranks, [&](comm::World& world) {
    TrainState run = test::build_run(config, test::tiny_moe_maker(test::tiny_moe())(), world);
    store(run, leg.begin);
    Checkpointer checkpointer(run);
    while (run.step < until) {
      const StepReport report = train_step(run).value();
      const double loss = loss_of_all_ranks(run, report).mean.item<double>();
      if (world.rank() == 0) leg.losses[run.step] = loss;
      checkpointer.after_step({});
    }
    checkpointer.finish();
    store(run, leg.end);
    run.mesh->host_group("world")->barrier();
  });
  return leg;
}

TEST(ExpertCheckpoints, GoFromLayoutToLayout) {
  const Stop one{{"one", 1, 1, 1}};
  JobConfig undisturbed = saving_config(one, "");
  undisturbed.checkpoint.enable = false;
  const Leg whole = train_until(undisturbed, 1, 12);
  const std::filesystem::path folder = test::test_folder();
  Tensors saved;
  int64_t step = 0;
  for (const Stop& stop :
       {Stop{{"ep2", 1, 2, 1}, 2}, Stop{{"tp2_ep2_etp2", 1, 2, 2}, 2, 2}, Stop{{"fsdp2_ep2", 1, 4, 1}, 2},
        Stop{{"pp2_ep2", 1, 2, 1, dual_pipe_v, 1, 2}, 2}, Stop{{"cp2_tp2_ep4", 1, 1, 2, nothing, 2}, 4}, one}) {
    SCOPED_TRACE(stop.layout.name);
    const Leg leg = train_until(saving_config(stop, folder), stop.layout.ranks(), step + 2);
    if (step > 0) {
      for (const auto& [name, tensor] : saved) EXPECT_TRUE(at::equal(leg.begin.at(name), tensor)) << name;
    }
    saved = leg.end;
    for (const auto& [at_step, loss] : leg.losses) EXPECT_NEAR(loss, whole.losses.at(at_step), 1e-5 * loss) << at_step;
    EXPECT_EQ(leg.losses.size(), 2U);
    step += 2;
  }
  for (const auto& [name, tensor] : whole.end) {
    if (name.ends_with("expert_bias")) EXPECT_CLOSE(saved.at(name), tensor, 1e-6);
  }
}

}  // namespace
}  // namespace titanium::train
