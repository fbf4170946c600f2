#include "titanium/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "titanium/base/error.h"
#include "titanium/base/log.h"

namespace titanium::optim {
namespace {

double decayed(LrDecay decay, double progress) {
  switch (decay) {
    case LrDecay::kLinear:
      return 1 - progress;
    case LrDecay::kSqrt:
      return 1 - std::sqrt(progress);
    case LrDecay::kCosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  return 1;
}

}  // namespace

LrDecay parse_lr_decay(std::string_view name) {
  if (name == "linear") return LrDecay::kLinear;
  if (name == "sqrt") return LrDecay::kSqrt;
  if (name == "cosine") return LrDecay::kCosine;
  throw UsageError(fmt::format("decay type \"{}\" is unknown. Use linear, sqrt or cosine.", name));
}

LrSchedule plan_lr_schedule(const LrScheduleOptions& options) {
  const int64_t total = options.total_steps;
  int64_t warmup = options.warmup_steps;
  if (warmup > total) {
    log_warning("Warmup steps ({}) exceed total steps ({}). Adjusting warmup steps to {}.", warmup, total, total);
    warmup = total;
  }
  int64_t decay = total - warmup;
  if (options.decay_ratio) {
    // Halves go to the even neighbour, as in Python.
    const auto wanted = static_cast<int64_t>(std::nearbyint(static_cast<double>(total) * *options.decay_ratio));
    if (wanted > decay) {
      log_warning("Warmup ({}) + decay ({}) steps exceed total steps ({}). Adjusting decay steps to {}.", warmup,
                  wanted, total, decay);
    }
    decay = std::min(wanted, decay);
  }
  return {.warmup_steps = warmup,
          .stable_steps = total + 1 - warmup - decay,
          .decay_steps = decay,
          .decay = options.decay,
          .min_factor = options.min_factor};
}

double lr_factor(const LrSchedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  const int64_t decay_begin = schedule.warmup_steps + schedule.stable_steps;
  if (step < decay_begin || schedule.decay_steps == 0) return 1;
  const int64_t into_decay = std::min(step + 1 - decay_begin, schedule.decay_steps);
  const double progress = static_cast<double>(into_decay) / static_cast<double>(schedule.decay_steps);
  return schedule.min_factor + (1 - schedule.min_factor) * decayed(schedule.decay, progress);
}

}  // namespace titanium::optim
