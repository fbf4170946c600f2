#include "titanium/train/train_state.h"

#include <ATen/Context.h>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/base/text/thousands.h"
#include "titanium/models/model_converters.h"
#include "titanium/models/registry.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/gemm.h"
#include "titanium/parallel/activation_checkpoint.h"
#include "titanium/tensor/gpu_backend.h"
#include "titanium/train/host_memory.h"
#include "titanium/train/load_checkpoint.h"
#include "titanium/train/task/tasks.h"

namespace titanium::train {
namespace {

// config::check_world_size has made sure that it divides.
int64_t accumulation_steps(const config::Training& training, int64_t data_parallel_ranks) {
  if (training.global_batch_size == -1) return 1;
  return training.global_batch_size / (training.local_batch_size * data_parallel_ranks);
}

optim::LrSchedule build_schedule(const JobConfig& config) {
  const config::LrScheduler& scheduler = config.lr_scheduler;
  return optim::plan_lr_schedule({.total_steps = scheduler.total_steps.value_or(config.training.steps),
                                  .warmup_steps = scheduler.warmup_steps,
                                  .decay_ratio = scheduler.decay_ratio,
                                  .decay = optim::parse_lr_decay(scheduler.decay_type),
                                  .min_factor = scheduler.min_lr_factor});
}

void apply_activation_checkpoint(models::Model& model, const std::vector<size_t>& levels,
                                 const config::ActivationCheckpoint& options) {
  for (int64_t i = 0; i < model.block_count(); ++i) {
    if (nn::Block* block = model.block(i)) block->level = levels[static_cast<size_t>(i)];
  }
  if (options.mode != "none") log_info("Applied {} activation checkpointing to the model", options.mode);
}

// Offloaded parameters, gradients and optimizer states live in host memory.
void materialize(models::Model& model, const config::Training& training, Device device) {
  const bool offload = training.enable_cpu_offload && device.is_cuda();
  model.materialize(parse_dtype(training.dtype), offload ? Device(at::kCPU) : device, /*pinned=*/offload,
                    /*buffers=*/device);
  model.build_buffers(device);
}

// Where experts are spread over ranks, their rows travel while the other of a pair computes.
parallel::RunPair run_pair_of(const TrainState& run) {
  ops::ExpertExchange* experts = run.parallelism.experts.get();
  if (experts == nullptr || !run.config.parallelism.pipeline_parallel_expert_parallel_overlap) return {};
  return [experts](const auto& forward, const auto& backward) { experts->run_pair(forward, backward); };
}

std::unique_ptr<Executor> build_executor(const TrainState& run, std::optional<PipelinePlan> plan) {
  parallel::DataParallel& data_parallel = *run.parallelism.data_parallel;
  if (!plan) return std::make_unique<WholeModel>(*run.model, data_parallel, run.device);
  log_info("Using pipeline schedule {} with {} microbatches and {} stages.",
           run.config.parallelism.pipeline_parallel_schedule, plan->table.micro_batches, plan->stages.size());
  return std::make_unique<Pipeline>(*std::move(plan), *run.model, data_parallel, *run.mesh, run.device,
                                    run_pair_of(run));
}

void log_batch(const TrainState& run) {
  const config::Training& training = run.config.training;
  log_info(
      "Trainer is initialized with local batch size {}, global batch size {}, gradient accumulation steps {}, sequence "
      "length {}, total steps {} (warmup {})",
      training.local_batch_size, training.local_batch_size * run.mesh->size("batch") * run.accumulation_steps,
      run.accumulation_steps, training.seq_len, training.steps, run.schedule.warmup_steps);
}

// What titanium tune has found for this GPU.
void use_tuned_products(Device device) {
  const std::string gpu = gpu_device_properties(device.index()).name;
  const auto file = ops::gemm_choices_file(gpu, ops::gemm_library_version());
  const ops::GemmChoices choices = ops::read_gemm_choices(file);
  ops::use_gemm_choices(choices);
  if (choices.empty()) {
    log_info("Matrix products are not tuned for this GPU; titanium tune with the same options makes them faster.");
  } else {
    log_info("Using {} tuned matrix products of {}", choices.size(), file.string());
  }
}

void apply_determinism(const config::Debug& debug) {
  if (!debug.deterministic) return;
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, debug.deterministic_warn_only);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  log_info("Deterministic algorithms enabled (expect perf degradation).");
}

}  // namespace

Dtype compute_dtype(const JobConfig& config) { return parse_dtype(config.training.mixed_precision_param); }

ModelPlan plan_model(const JobConfig& config, int64_t world_size, int rank) {
  return plan_model(config, world_size, rank, models::build_model(config, config.training.seq_len),
                    models::find_model(config.model.name).training);
}

ModelPlan plan_model(const JobConfig& config, int64_t world_size, int rank, std::unique_ptr<models::Model> model,
                     const models::TrainingDefaults& defaults) {
  ModelPlan plan;
  plan.task = find_task(defaults.task);
  plan.dims = parallel::parallel_dims(config.parallelism, world_size);
  plan.pipeline = plan_pipeline(config, plan.dims, model->children());
  if (config.optimizer.early_step_in_backward && plan.pipeline) {
    throw UsageError(fmt::format(
        "optimizer.early_step_in_backward updates a block after its only backward of a step, and with "
        "parallelism.pipeline_parallel_degree = {} it has one for each micro-batch. Leave one of the two out.",
        plan.dims.pp));
  }
  check_parameter_groups(config.optimizer, *model);
  const int64_t pipeline_rank = parallel::axis_rank(plan.dims, "pp", rank);
  plan.model = plan.pipeline ? model->part(plan.pipeline->stages_of(pipeline_rank)) : std::move(model);
  plan.model->compute_dtype = compute_dtype(config);
  if (config.debug.moe_force_load_balance) plan.model->force_expert_balance();
  models::apply_converters(*plan.model, config, plan.dims);
  models::place_parameters(*plan.model, config, plan.dims, rank);
  plan.update = plan_optimizer(config, defaults, *plan.model, plan.dims, rank);
  std::vector<nn::SaveLevels> blocks;
  for (int64_t block = 0; block < plan.model->block_count(); ++block) blocks.push_back(plan.model->levels_of(block));
  config::ActivationCheckpoint recomputed = config.activation_checkpoint;
  if (recomputed.mode == "selective" && defaults.selective_recomputes_all) recomputed.mode = "full";
  plan.levels = parallel::plan_activation_checkpoint(recomputed, blocks);
  plan.memory = plan_memory(
      *plan.model, *plan.update.optimizer, config, plan.dims, plan.levels,
      {.live = plan.pipeline ? plan.pipeline->live_samples(pipeline_rank) : config.training.local_batch_size,
       .tokens = plan.task.tokens_of_sample(config, *plan.model)},
      plan.task.frozen_memory != nullptr ? plan.task.frozen_memory(config, *plan.model, plan.dims) : FrozenMemory());
  return plan;
}

uint64_t weight_seed(const config::Debug& debug) { return static_cast<uint64_t>(debug.seed.value_or(0)); }

void log_plan(const JobConfig& config, const ModelPlan& plan) {
  log_info("Building device mesh with parallelism: {}", describe(plan.dims));
  log_info("Active meshes: {}", describe_active_axes(plan.dims));
  log_info("Building {} {} with {}", config.model.name, config.model.flavor, plan.model->description());
  const std::string total = with_thousands_separators(plan.model->costs().size(config.training.seq_len).parameters);
  log_info("Model {} {} size: {} total parameters", config.model.name, config.model.flavor, total);
  const Dtype dtype = parse_dtype(config.training.dtype);
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  int64_t held = 0, held_bytes = 0;
  for (const Parameter* parameter : plan.model->parameters()) {
    const int64_t elements = volume(parameter->shard.shape);
    held += elements;
    held_bytes += 2 * elements * element + plan.update.optimizer->state_bytes(*parameter, dtype);
  }
  log_info("This rank holds {} of {} parameters, {:.2f} GiB with gradients and optimizer states",
           with_thousands_separators(held), total, static_cast<double>(held_bytes) / (1 << 30));
  log_info("Memory plan: {}", describe(plan.memory));
}

TrainState build_train_state(const JobConfig& config, Device device, std::shared_ptr<comm::World> world) {
  models::check_converters(config, device);
  ModelPlan plan = world != nullptr ? plan_model(config, world->size(), world->rank()) : plan_model(config);
  return build_train_state(config, device, std::move(world), std::move(plan));
}

TrainState build_train_state(const JobConfig& config, Device device, std::shared_ptr<comm::World> world,
                             ModelPlan plan) {
  apply_determinism(config.debug);
  ops::set_reference_ops(config.debug.reference_ops);
  log_plan(config, plan);
  if (device.is_cuda()) {
    check_fits(plan.memory, gpu_device_properties(device.index()).total_memory);
    use_tuned_products(device);
  } else {
    check_fits_host(plan.memory, host_memory());
  }

  TrainState run{.config = config, .device = device};
  run.world = world != nullptr ? std::move(world) : comm::make_fake_world(/*rank=*/0, /*size=*/1);
  run.mesh = std::make_unique<parallel::Mesh>(*run.world, plan.dims);
  const auto source = find_load_source(config, *run.mesh->host_group("world"));
  run.model = std::move(plan.model);
  run.parameters = run.model->parameters();
  apply_activation_checkpoint(*run.model, plan.levels, config.activation_checkpoint);
  materialize(*run.model, config.training, device);
  if (!source || !fills_model(*source, config.checkpoint)) run.model->init_weights(weight_seed(config.debug));
  run.parallelism = models::parallelize(*run.model, config, *run.mesh, device);
  run.executor = build_executor(run, std::move(plan.pipeline));
  run.optimizer = std::move(plan.update.optimizer);
  run.optimizer->materialize();
  if (plan.update.matrices != nullptr) plan.update.matrices->connect(*run.world, device);
  if (config.optimizer.early_step_in_backward) {
    run.early_step =
        std::make_unique<EarlyStep>(run.model->units(), *run.optimizer, *run.parallelism.data_parallel, *run.mesh);
  }
  run.schedule = build_schedule(config);
  run.task = plan.task.make({config, *run.model, *run.mesh, run.parallelism.share, device});
  run.data = run.task->training_data();
  run.accumulation_steps = accumulation_steps(config.training, run.mesh->size("batch"));
  log_batch(run);
  if (source) load_checkpoint(run, *source);
  return run;
}

bool reads_for_others(const parallel::Mesh& mesh) {
  return mesh.rank("tp") == 0 && mesh.rank("pp") == 0 && mesh.rank("cp") == 0;
}

}  // namespace titanium::train
