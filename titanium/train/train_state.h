// Everything that a run consists of, built by named functions from its configuration.
#pragma once

#include <memory>
#include <vector>

#include "titanium/checkpoint/staging.h"
#include "titanium/config/job_config.h"
#include "titanium/models/model_spec.h"
#include "titanium/models/parallelize.h"
#include "titanium/optim/lr_schedule.h"
#include "titanium/train/build_optimizer.h"
#include "titanium/train/early_step.h"
#include "titanium/train/memory_plan.h"
#include "titanium/train/pipeline.h"

namespace titanium::train {

struct TrainState {
  JobConfig config;
  Device device;
  std::shared_ptr<comm::World> world;
  std::unique_ptr<parallel::Mesh> mesh;
  models::Parallelism parallelism;
  std::unique_ptr<models::Model> model;  // with a pipeline, the part that is here
  std::unique_ptr<Executor> executor;
  std::vector<Parameter*> parameters;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<EarlyStep> early_step;  // null: the optimizer steps after the backward
  optim::LrSchedule schedule;
  std::unique_ptr<Task> task;
  std::unique_ptr<BatchSource> data;  // of the training
  int64_t accumulation_steps = 1;
  std::unique_ptr<checkpoint::Staging> staging;  // of checkpoints that are written in the background

  int64_t step = 0;           // finished
  int64_t tokens_seen = 0;    // by all ranks
  int64_t schedule_step = 0;  // that the learning rate has come to

  // To be called before parameters or optimizer states change, which then wait for the copies of a checkpoint.
  void hold_updates() {
    if (staging) staging->hold_updates();
  }
};

// The model and its optimizer without storage, placed for one rank; what it is trained on; what its blocks keep; and
// the memory that the rank will need.
struct ModelPlan {
  std::unique_ptr<models::Model> model;
  OptimizerPlan update;
  TaskSpec task;
  parallel::ParallelDims dims;
  std::optional<PipelinePlan> pipeline;
  std::vector<size_t> levels;  // of what each block of the whole model keeps
  MemoryPlan memory;
};
ModelPlan plan_model(const JobConfig& config, int64_t world_size = 1, int rank = 0);
// The same for a model that is not in the registry.
ModelPlan plan_model(const JobConfig& config, int64_t world_size, int rank, std::unique_ptr<models::Model> model,
                     const models::TrainingDefaults& defaults = {});

// The mesh, the model, what this rank holds of it, and the memory that it will need.
void log_plan(const JobConfig& config, const ModelPlan& plan);

// Builds all of it and logs the start-up lines. Throws UsageError for what the configuration asks and cannot be. All
// ranks of the world do so together; without one, the run has one rank.
TrainState build_train_state(const JobConfig& config, Device device, std::shared_ptr<comm::World> world = nullptr);
TrainState build_train_state(const JobConfig& config, Device device, std::shared_ptr<comm::World> world,
                             ModelPlan plan);

// The parts, for commands that need only some of them.
Dtype compute_dtype(const JobConfig& config);
uint64_t weight_seed(const config::Debug& debug);
// Ranks that differ only in their part of the model or of the sequence read the same samples; one of them counts.
bool reads_for_others(const parallel::Mesh& mesh);

}  // namespace titanium::train
