#include "titanium/train/trainer.h"

#include <cstdlib>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/log.h"
#include "titanium/base/machine/heap.h"
#include "titanium/base/terminal/terminal.h"
#include "titanium/config/dump.h"
#include "titanium/models/model_converters.h"
#include "titanium/remote/transport/retry.h"
#include "titanium/tensor/gpu_backend.h"
#include "titanium/tensor/version.h"
#include "titanium/train/check_run.h"
#include "titanium/train/checkpointer.h"
#include "titanium/train/memory_snapshots.h"
#include "titanium/train/profiler.h"
#include "titanium/train/report/metrics.h"
#include "titanium/train/report/peak_flops.h"
#include "titanium/train/report/run_observer.h"
#include "titanium/train/report/step_logger.h"
#include "titanium/train/share_listings.h"
#include "titanium/train/start_world.h"
#include "titanium/train/validate.h"

namespace titanium::train {
namespace {

void announce(const config::LoadedConfig& loaded) {
  const config::Job& job = loaded.config.job;
  log_info("titanium with {}", library_versions());
  log_info("Starting job: {}", job.description);
  for (const std::string& hint : loaded.hints) log_info("{}", hint);
  if (job.print_config) log_info("Running with configs: {}", config::to_json(loaded));
  if (job.save_config_file) {
    write_file_atomically(std::filesystem::path(job.dump_folder) / *job.save_config_file, config::to_json(loaded));
  }
}

// The first rank that makes the loss.
bool is_metrics_rank(const TrainState& run) {
  const int64_t ranks_per_stage = run.world->size() / run.mesh->size("pp");
  return run.world->rank() == ranks_per_stage * run.executor->loss_rank();
}

observe::RunStart describe_start(const comm::Environment& ranks, const ModelPlan& plan, const MemoryMonitor& monitor) {
  observe::RunStart start;
  start.restarts = ranks.restart_count;
  start.world_size = ranks.world_size;
  start.layout = describe(plan.dims);
  start.device = monitor.capacity_line();
  start.versions = library_versions();
  // The plan is one of tensors, which cannot be compared with a whole process.
  if (monitor.counts_tensors()) start.planned_memory_gib = static_cast<double>(plan.memory.total()) / (1 << 30);
  if (plan.pipeline) start.pipeline = plan.pipeline->table;
  return start;
}

MetricsOptions metrics_options(const config::LoadedConfig& loaded, const TrainState& run, const MemoryMonitor& monitor,
                               RunObserver& observer) {
  const config::Metrics& metrics = run.config.metrics;
  MetricsOptions options;
  options.log_freq = metrics.log_freq;
  options.color = !metrics.disable_color_printing && colors_are_wanted() && log_format() == LogFormat::kText;
  options.enable_tensorboard = metrics.enable_tensorboard;
  options.enable_jsonl = metrics.enable_jsonl;
  options.dump_folder = run.config.job.dump_folder;
  options.save_tb_folder = metrics.save_tb_folder;
  options.resumed_step = run.step;
  options.is_metrics_rank = is_metrics_rank(run);
  options.save_for_all_ranks = metrics.save_for_all_ranks;
  options.rank = run.world->rank();
  options.observer = &observer;
  if (metrics.enable_wandb) {
    options.wandb = observe::read_wandb_settings([](const char* name) { return std::getenv(name); });
    options.config_json = config::to_json(loaded);
  }
  options.non_data_parallel_size = run.mesh->dims().non_data_parallel_size();
  options.flops_per_token = run.task->flops_per_token();
  options.tokens_per_image = run.task->tokens_per_image();
  if (run.device.is_cuda()) {
    options.peak_flops = peak_flops(monitor.device_name());
    log_info("Peak FLOPS used for computing MFU: {:.3e}", *options.peak_flops);
  }
  return options;
}

void report_validation(TrainState& run, const std::vector<ValidationData>& sets, Metrics& metrics) {
  for (const ValidationData& set : sets) {
    metrics.begin_validation();
    const ValidationReport report = validate(run, *set.data);
    metrics.count_tokens(report.tokens);
    metrics.log_validation(run.step, report.loss, set.name);
  }
  metrics.begin_validation();
  metrics.log_images(run.step, run.task->show_samples(run.step));
}

// The first step builds and tunes; from the second on a collective that takes long is a fault.
void lower_timeout(const TrainState& run) {
  if (run.world->size() == 1) return;
  const int64_t seconds = run.config.comm.train_timeout_seconds;
  log_info("Synchronizing and adjusting timeout for all ProcessGroups to {}:{:02}:{:02}", seconds / 3600,
           seconds / 60 % 60, seconds % 60);
  if (run.device.is_cuda()) synchronize_gpu();
  run.mesh->host_group("world")->barrier();
  run.world->set_timeout(std::chrono::seconds(seconds));
  remote::set_patience(remote::patience_within(std::chrono::seconds(seconds)));
}

// The process ends in the callback, so what is known of the failure is kept before; two ranks are enough for that.
std::function<void(const std::string&)> on_peer_failure(const JobConfig& config, const comm::Environment& ranks,
                                                        const TrainCallbacks& callbacks) {
  const bool keeps = config.metrics.enable_jsonl && ranks.rank < 2;
  return [keeps, folder = config.job.dump_folder, rank = ranks.rank, &callbacks](const std::string& line) {
    if (keeps) observe::append_run_error(folder, rank, line);
    callbacks.on_peer_failure(line);
  };
}

bool take(std::atomic<bool>* request) { return request != nullptr && request->exchange(false); }

// How the run ended: after its last step or its data, or because somebody asked.
observe::RunEnd train_to_the_end(TrainState& run, Metrics& metrics, Checkpointer& checkpointer, RunObserver& observer,
                                 const MemorySnapshots& snapshots, const TrainCallbacks& callbacks) {
  const config::Validation& validation = run.config.validation;
  const auto validation_sets = validation.enable ? run.task->validation_sets() : std::vector<ValidationData>();
  const int64_t first_step = run.step + 1;
  log_info("Training starts at step {}", first_step);
  StepLogger logger(run, metrics);
  Profiler profiler(run.config, run.device, run.world->rank(), run.world->size(), run.step);
  while (run.step < run.config.training.steps) {
    const Requests requests{.stop = callbacks.stop_requested, .save = take(callbacks.save_requested)};
    const std::optional<StepReport> report = train_step(run, requests);
    if (!report) {
      logger.flush();
      checkpointer.after_step({.stopping = true});
      break;
    }
    observer.step_finished(run.step);
    set_log_step(run.step);
    if (callbacks.on_step) callbacks.on_step(run.step);
    if (run.step == first_step) lower_timeout(run);
    logger.add(*report);
    if (run.step == first_step) logger.flush();  // soon seen to work
    if (validation.enable && (run.step == 1 || run.step % validation.freq == 0)) {
      logger.flush();
      report_validation(run, validation_sets, metrics);
    }
    const bool alone = run.world->size() == 1;
    const bool stopping = report->requests.stop || (alone && callbacks.stop_requested);
    const Checkpointer::Reasons reasons{.asked = report->requests.save, .stopping = stopping};
    if (stopping || checkpointer.is_due(reasons)) logger.flush();  // what is not finite is not saved
    checkpointer.after_step(reasons);
    profiler.after_step(run.step);
    snapshots.after_step(run.step);
    if (stopping) {
      log_warning("Stopped by a signal after step {}", run.step);
      profiler.finish();
      return observe::RunEnd::kStopped;
    }
  }
  logger.flush();
  profiler.finish();
  log_info("Training completed");
  return observe::RunEnd::kCompleted;
}

}  // namespace

void train(const config::LoadedConfig& loaded, const TrainCallbacks& callbacks) {
  const JobConfig& config = loaded.config;
  const comm::Environment ranks = ranks_of_run(config.comm);
  check_options(loaded, ranks.world_size, config::Purpose::kRun);
  announce(loaded);
  if (config.memory_estimation.enable) {
    log_plan(config, plan_model(config, ranks.world_size, ranks.rank));
    return;
  }
  const bool seed = config.checkpoint.create_seed_checkpoint;
  const Device device = seed ? Device(at::kCPU) : pick_device(config, ranks);
  if (device.is_cpu()) keep_freed_memory();
  if (device.is_cuda()) choose_gpu_allocator();
  const MemorySnapshots snapshots(config, device, ranks.rank);
  MemoryMonitor monitor(device);
  log_info("{}", monitor.capacity_line());
  const std::shared_ptr<comm::World> world =
      start_world(config, ranks, device, on_peer_failure(config, ranks, callbacks));
  const TrainState* built = nullptr;
  const auto failing_together = [&](const auto& part) {
    try {
      return part();
    } catch (const std::exception& error) {
      if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
        snapshots.after_out_of_memory(built == nullptr ? 0 : built->step);
      }
      dump_flights_of_failure(config);
      if (config.metrics.enable_jsonl) observe::append_run_error(config.job.dump_folder, ranks.rank, error.what());
      world->report_failure(error.what());  // before anything is torn down that could wait for a peer
      throw;
    }
  };
  observe::RunStart start;
  TrainState run = failing_together([&] {
    share_listings(*world, config);
    RunCheck check = check_run(config, ranks.world_size, {ranks.rank});
    refuse_problems(check);
    models::check_converters(config, device);
    start = describe_start(ranks, check.plans[0], monitor);
    return build_train_state(config, device, world, std::move(check.plans[0]));
  });
  built = &run;
  failing_together([&] {
    if (callbacks.on_built) callbacks.on_built(run);
    start.step = run.step;
    const bool seed_only = config.checkpoint.create_seed_checkpoint;
    RunObserver observer(loaded, start, is_metrics_rank(run) && !seed_only);
    Checkpointer checkpointer(run, /*before_writing=*/{},
                              [&](int64_t step, double seconds) { observer.checkpoint_saved(step, seconds); });
    if (seed_only) return checkpointer.save_seed();
    Metrics metrics(metrics_options(loaded, run, monitor, observer), real_sources(monitor));
    const observe::RunEnd how = train_to_the_end(run, metrics, checkpointer, observer, snapshots, callbacks);
    checkpointer.finish();
    metrics.finish();
    observer.ended(run.step, how);
  });
}

}  // namespace titanium::train
