// Runs of a tiny Llama on ranks that are threads, in any layout.
#pragma once

#include <functional>

#include "tests/support/source_folder.h"
#include "tests/support/threaded_ranks.h"
#include "tests/support/tiny_llama.h"
#include "titanium/models/llama3/model.h"
#include "titanium/train/train_state.h"

namespace titanium::test {

inline JobConfig tiny_config() {
  JobConfig config;
  config.model.hf_assets_path = source_folder() / "tests/assets/tokenizer";
  config.training.seq_len = 32;
  config.training.local_batch_size = 12;
  config.training.global_batch_size = 12;
  config.training.data_streams = 12;
  config.training.dataset = "c4_test";
  config.training.dataset_path = source_folder() / "tests/assets/c4_test";
  config.training.mixed_precision_param = "float32";
  config.activation_checkpoint.mode = "none";
  config.optimizer.lr = 2e-4;      // Adam turns rounding of tiny gradients into steps of this size
  config.training.max_norm = 0.1;  // of about 0.4, so that every update is clipped
  config.lr_scheduler.warmup_steps = 2;
  config.training.steps = 10;
  return config;
}

inline models::llama3::Args tiny_args(bool tied) {
  models::llama3::Args args = tiny_llama(tiny_config().training.seq_len);
  args.tied_embeddings = tied;
  return args;
}

using ModelMaker = std::function<std::unique_ptr<models::Model>()>;

// This rank's run of any model. `world` outlives it.
inline train::TrainState build_run(const JobConfig& config, std::unique_ptr<models::Model> model, comm::World& world) {
  auto plan = train::plan_model(config, world.size(), world.rank(), std::move(model));
  return train::build_train_state(config, at::kCPU, std::shared_ptr<comm::World>(&world, [](comm::World*) {}),
                                  std::move(plan));
}

inline train::TrainState build_run(const JobConfig& config, const models::llama3::Args& args, comm::World& world) {
  return build_run(config, std::make_unique<models::llama3::Llama3>(args), world);
}

struct Layout {
  const char* name;
  int64_t replicate, shard, tensor;
  std::function<void(JobConfig&)> change = [](JobConfig&) {};
  int64_t context = 1;
  int64_t pipeline = 1;
  int ranks() const { return static_cast<int>(replicate * shard * tensor * context * pipeline); }
};

inline void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

inline JobConfig configure(const Layout& layout) {
  JobConfig config = tiny_config();
  config.parallelism.data_parallel_replicate_degree = layout.replicate;
  config.parallelism.data_parallel_shard_degree = layout.shard;
  config.parallelism.tensor_parallel_degree = layout.tensor;
  config.parallelism.context_parallel_degree = layout.context;
  config.parallelism.pipeline_parallel_degree = layout.pipeline;
  config.training.local_batch_size = 12 / (layout.replicate * layout.shard);
  layout.change(config);
  return config;
}

}  // namespace titanium::test
