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

// Early blocks first: what late blocks keep is used first in the backward and lives for the shortest time.
std::vector<nn::BlockSaves> plan_within(double budget, int64_t blocks, const SavedBytes& saved_bytes) {
  using enum nn::BlockSaves;
  std::vector saves(blocks, kEverything);
  int64_t kept = blocks * saved_bytes(kEverything);
  const auto allowed = static_cast<int64_t>(budget * static_cast<double>(kept));
  for (const nn::BlockSaves less : {kGateAndUp, kAttentionHalf, kInput}) {
    for (nn::BlockSaves& block : saves) {
      if (kept <= allowed) return saves;
      if (saved_bytes(less) == saved_bytes(block)) continue;
      kept -= saved_bytes(block) - saved_bytes(less);
      block = less;
    }
  }
  return saves;
}

}  // namespace

std::vector<nn::BlockSaves> plan_activation_checkpoint(const config::ActivationCheckpoint& options, int64_t blocks,
                                                       const SavedBytes& saved_bytes) {
  if (options.mode == "memory_budget") return plan_within(options.memory_budget, blocks, saved_bytes);
  if (options.mode == "none") return std::vector(blocks, nn::BlockSaves::kEverything);
  if (options.mode == "full") return std::vector(blocks, nn::BlockSaves::kInput);
  if (options.selective_ac_option == "op") return std::vector(blocks, nn::BlockSaves::kAttentionHalf);
  const int64_t every = parse_every_nth(options.selective_ac_option);
  std::vector saves(blocks, nn::BlockSaves::kEverything);
  for (int64_t block = 0; block < blocks; ++block) {
    if (every == 0 || (block + 1) % every == 0) saves[block] = nn::BlockSaves::kInput;
  }
  return saves;
}

}  // namespace titanium::parallel
