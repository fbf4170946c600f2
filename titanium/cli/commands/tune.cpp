// titanium tune: finds the best algorithm for each GEMM of a model on this GPU.
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
    "Finds the best algorithm for each matrix product of a model on this GPU: trains for a few steps, in which the\n"
    "products try what the library offers, and then runs that in loops at the GPU's power limit. titanium train uses "
    "the\n"
    "choices from then on. Nothing is saved of the run.\n"
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

std::string in_loops(const ops::GemmTrial& trial) {
  const auto& loops = trial.sustained;
  if (!loops) return fmt::format("{:>9} {:>9} {:>9}", "-", "-", "-");
  return fmt::format("{:9.1f} {:9.1f} {:9.1f}", loops->first_us, loops->fastest_in_steps_us, loops->best_us);
}

// us of a call. In loops: the library's first, the fastest of the steps, the chosen.
void print_table(const std::vector<ops::GemmTrial>& trials) {
  fmt::print("{:>19} | {:^29} |\n", "us in steps", "us in loops");
  fmt::print("{:>9} {:>9} | {:>9} {:>9} {:>9} | {:>6}  product (rows x columns x sum)\n", "first", "fastest", "first",
             "fastest", "best", "calls");
  for (const ops::GemmTrial& trial : trials) {
    fmt::print("{:9.1f} {:9.1f} | {} | {:6}  {}\n", trial.first_us, trial.best_us, in_loops(trial), trial.calls,
               trial.product);
  }
}

void print_sums(const std::vector<ops::GemmTrial>& trials) {
  double first = 0, fastest = 0, first_in_loops = 0, fastest_in_loops = 0, best_in_loops = 0;
  for (const ops::GemmTrial& trial : trials) {
    const auto calls = static_cast<double>(trial.calls);
    first += trial.first_us * calls;
    fastest += trial.best_us * calls;
    if (!trial.sustained) continue;
    first_in_loops += trial.sustained->first_us * calls;
    fastest_in_loops += trial.sustained->fastest_in_steps_us * calls;
    best_in_loops += trial.sustained->best_us * calls;
  }
  fmt::print("in steps, the fastest together {:.1f}% less time than the first\n", 100 * (1 - fastest / first));
  if (fastest_in_loops == 0) return;
  const auto gain = [&](double over) { return 100 * (1 - best_in_loops / over); };
  fmt::print(
      "in loops, the best together {:.1f}% less time than the first, {:.1f}% less than the fastest of the steps\n",
      gain(first_in_loops), gain(fastest_in_loops));
}

ops::GemmTrials try_products(const config::LoadedConfig& loaded, bool by_loops) {
  ops::start_gemm_trials();
  const std::atomic<bool> never = false;
  std::optional<Progress> bar(std::in_place, "tuning, steps", loaded.config.training.steps);
  train::train(loaded, {.stop_requested = never,
                        .on_peer_failure = end_after_peer_failure,
                        .on_step = [&](int64_t step) { bar->update(step); }});
  bar.reset();
  return ops::finish_gemm_trials({.by_loops = by_loops, .on_product = [&](int64_t done, int64_t products) {
                                    if (!bar) bar.emplace("tuning, products", products);
                                    bar->update(done);
                                  }});
}

}  // namespace

int run_tune(Arguments args) {
  int64_t steps = 10;
  std::string by = "sustained";
  CommandLine app(kDescription, "tune");
  app.take_run_options();
  app.option("--steps", steps, "Training steps").positive().shows_default();
  app.option("--by", by,
             "Choose by the time in sustained loops, which at the power limit is the energy, or in the steps")
      .one_of({"sustained", "step"})
      .shows_default();
  if (!app.parse(args)) return 0;
  const config::LoadedConfig loaded = for_trials(config::load_config(app.run_options()), steps);
  if (gpu_device_count() == 0) {
    throw UsageError("titanium tune measures a GPU, and there is none here (" + gpu_versions() + ").");
  }
  show_log();
  const bool decides = comm::read_environment().rank == 0;
  const ops::GemmTrials found = try_products(loaded, decides && by == "sustained");
  if (found.trials.empty()) {
    throw UsageError(
        "no product of this run can be tuned: only those of 16-bit numbers are. Take bfloat16 in "
        "training.dtype or training.mixed_precision_param, and leave debug.reference_ops off.");
  }
  if (!decides) return 0;
  const auto file = ops::gemm_choices_file(gpu_device_properties(0).name, ops::gemm_library_version());
  if (file.empty()) throw UsageError("there is no folder to keep the choices in. Set TITANIUM_CACHE_DIR.");
  ops::write_gemm_choices(file, found.choices);
  print_table(found.trials);
  print_sums(found.trials);
  fmt::print("{} choices are in {}\n", found.choices.size(), file.string());
  return 0;
}

}  // namespace titanium::cli
