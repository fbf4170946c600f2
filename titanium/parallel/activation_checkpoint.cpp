#include "titanium/parallel/activation_checkpoint.h"

#include <charconv>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

int64_t parse_every_nth(const std::string& text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    throw UsageError(
        fmt::format("activation_checkpoint.selective_ac_option = \"{}\" is neither \"op\" nor a number. Use \"op\", or "
                    "\"2\" to recompute every second block.",
                    text));
  }
  return number;
}

// Early blocks first: what late blocks keep is used first in the backward and lives for the shortest time. Lists of
// different lengths end together, so that whole blocks are given up last.
std::vector<size_t> plan_within(double budget, const std::vector<nn::SaveLevels>& blocks) {
  std::vector<size_t> plan(blocks.size(), 0);
  int64_t kept = 0;
  size_t most_levels = 0;
  for (const nn::SaveLevels& levels : blocks) {
    kept += levels.front().kept_bytes;
    most_levels = std::max(most_levels, levels.size());
  }
  const auto allowed = static_cast<int64_t>(budget * static_cast<double>(kept));
  for (size_t below_first = 1; below_first < most_levels; ++below_first) {
    for (size_t block = 0; block < blocks.size(); ++block) {
      if (kept <= allowed) return plan;
      const nn::SaveLevels& levels = blocks[block];
      const size_t less = below_first + levels.size() - std::min(most_levels, below_first + levels.size());
      const int64_t gain = levels[plan[block]].kept_bytes - levels[less].kept_bytes;
      if (gain == 0) continue;
      kept -= gain;
      plan[block] = less;
    }
  }
  return plan;
}

}  // namespace

std::vector<size_t> plan_activation_checkpoint(const config::ActivationCheckpoint& options,
                                               const std::vector<nn::SaveLevels>& blocks) {
  if (options.mode == "memory_budget") return plan_within(options.memory_budget, blocks);
  std::vector<size_t> plan(blocks.size(), 0);
  if (options.mode == "none") return plan;
  const bool by_operator = options.mode == "selective" && options.selective_ac_option == "op";
  const int64_t every = options.mode == "selective" && !by_operator ? parse_every_nth(options.selective_ac_option) : 1;
  for (size_t block = 0; block < blocks.size(); ++block) {
    const size_t last = blocks[block].size() - 1;
    const auto number = static_cast<int64_t>(block) + 1;
    if (by_operator) plan[block] = last == 0 ? 0 : last - 1;
    if (!by_operator && (every == 0 || number % every == 0)) plan[block] = last;
  }
  return plan;
}

}  // namespace titanium::parallel
