// The learning rate over the run: linear warm-up, a stable phase, and a decay.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace titanium::optim {

enum class LrDecay { kLinear, kSqrt, kCosine };

// "linear", "sqrt" or "cosine" as in TOML files. Throws UsageError on another name.
LrDecay parse_lr_decay(std::string_view name);

// The schedule as the user wrote it.
struct LrScheduleOptions {
  int64_t total_steps = 1;
  int64_t warmup_steps = 0;
  std::optional<double> decay_ratio = std::nullopt;  // share of total_steps; none: decay begins right after the warm-up
  LrDecay decay = LrDecay::kLinear;
  double min_factor = 0.0;
};

// As it will be run: the phases together are total_steps + 1 long. The step too many keeps the last one from training
// with a learning rate of min_factor.
struct LrSchedule {
  int64_t warmup_steps = 0;
  int64_t stable_steps = 0;
  int64_t decay_steps = 0;
  LrDecay decay = LrDecay::kLinear;
  double min_factor = 0.0;
};

// Logs a warning for each phase that had to be shortened to fit into total_steps.
LrSchedule plan_lr_schedule(const LrScheduleOptions& options);

// What the base learning rate is multiplied with in step `step`, counted from 0. After the last planned step it stays
// where the decay ended.
double lr_factor(const LrSchedule& schedule, int64_t step);

}  // namespace titanium::optim
