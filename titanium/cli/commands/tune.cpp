// titanium tune: finds the fastest algorithm for each GEMM of a model on this GPU.
#include "titanium/base/error.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/cli/command_line.h"
#include "titanium/cli/commands/train.h"
#include "titanium/comm/environment.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/ops/linear/gemm.h"
#include "titanium/tensor/gpu_backend.h"
#include "titanium/train/trainer.h"

namespace titanium::cli {
namespace {

constexpr const char* kDescription =
    "Finds the fastest algorithm for each matrix product of a model on this GPU: trains for a few steps, in which the\n"
    "products try what the library offers. titanium train uses the choices from then on. Nothing is saved of the run.\n"
    "With several ranks: titanium launch ... -- tune ...\n"
    "All other options are those of titanium train: --job.config_file FILE, --section.key value ...";

// A run that leaves nothing behind.
config::LoadedConfig for_trials(config::LoadedConfig loaded, int64_t steps) {
  JobConfig& config = loaded.config;
  config.training.steps = steps;
  config.checkpoint.enable = false;
  config.validation.enable = false;
  config.metrics.enable_tensorboard = config.metrics.enable_jsonl = config.metrics.enable_wandb = false;
  config.metrics.port = 0;
  config.job.save_config_file.reset();
  return loaded;
}

void print(const std::vector<ops::GemmTrial>& trials) {
  double before = 0, after = 0;
  fmt::print("{:>10} {:>10} {:>7} {:>6}  product (rows x columns x sum)\n", "first us", "best us", "gain", "calls");
  for (const ops::GemmTrial& trial : trials) {
    const auto calls = static_cast<double>(trial.calls);
    before += trial.first_us * calls;
    after += trial.best_us * calls;
    fmt::print("{:10.1f} {:10.1f} {:6.1f}% {:6}  {}\n", trial.first_us, trial.best_us,
               100 * (trial.first_us / trial.best_us - 1), trial.calls, trial.product);
  }
  fmt::print("together {:.1f}% less time\n", 100 * (1 - after / before));
}

}  // namespace

int run_tune(Arguments args) {
  int64_t steps = 10;
  CommandLine app(kDescription, "tune");
  app.take_run_options();
  app.option("--steps", steps, "Training steps").positive().shows_default();
  if (!app.parse(args)) return 0;
  const config::LoadedConfig loaded = for_trials(config::load_config(app.run_options()), steps);
  if (gpu_device_count() == 0) {
    throw UsageError("titanium tune measures a GPU, and there is none here (" + gpu_versions() + ").");
  }
  show_log();
  ops::start_gemm_trials();
  const std::atomic<bool> never = false;
  std::optional<Progress> bar(std::in_place, "tuning, steps", steps);
  train::train(loaded, {.stop_requested = never,
                        .on_peer_failure = end_after_peer_failure,
                        .on_step = [&](int64_t step) { bar->update(step); }});
  bar.reset();
  const ops::GemmTrials found = ops::finish_gemm_trials();
  if (found.trials.empty()) {
    throw UsageError(
        "no product of this run can be tuned: only those of 16-bit numbers are. Take bfloat16 in "
        "training.dtype or training.mixed_precision_param, and leave debug.reference_ops off.");
  }
  if (comm::read_environment().rank != 0) return 0;
  const auto file = ops::gemm_choices_file(gpu_device_properties(0).name, ops::gemm_library_version());
  if (file.empty()) throw UsageError("there is no folder to keep the choices in. Set TITANIUM_CACHE_DIR.");
  ops::write_gemm_choices(file, found.choices);
  print(found.trials);
  fmt::print("{} choices are in {}\n", found.choices.size(), file.string());
  return 0;
}

}  // namespace titanium::cli
