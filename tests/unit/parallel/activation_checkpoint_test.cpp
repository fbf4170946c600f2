#include "titanium/parallel/activation_checkpoint.h"

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

using enum nn::BlockSaves;
using Plan = std::vector<nn::BlockSaves>;

int64_t saved_bytes(nn::BlockSaves saves) { return saves == kInput ? 10 : saves == kAttentionHalf ? 50 : 100; }
int64_t saved_bytes_in_float8(nn::BlockSaves saves) { return saved_bytes(saves) + (saves == kEverything ? 20 : 0); }

Plan plan(const std::string& mode, const std::string& option = "2", double budget = 0.5,
          const SavedBytes& bytes = saved_bytes) {
  config::ActivationCheckpoint options;
  options.mode = mode;
  options.selective_ac_option = option;
  options.memory_budget = budget;
  return plan_activation_checkpoint(options, 5, bytes);
}

TEST(ActivationCheckpoint, NoneKeepsEverything) { EXPECT_EQ(plan("none"), Plan(5, kEverything)); }

TEST(ActivationCheckpoint, FullKeepsInputs) { EXPECT_EQ(plan("full"), Plan(5, kInput)); }

TEST(ActivationCheckpoint, ByOperatorKeepsTheAttentionHalf) {
  EXPECT_EQ(plan("selective", "op"), Plan(5, kAttentionHalf));
}

TEST(ActivationCheckpoint, EveryNthBlockIsRecomputedAsInTorchtitan) {
  EXPECT_EQ(plan("selective", "1"), Plan(5, kInput));
  EXPECT_EQ(plan("selective", "2"), (Plan{kEverything, kInput, kEverything, kInput, kEverything}));
  EXPECT_EQ(plan("selective", "3"), (Plan{kEverything, kEverything, kInput, kEverything, kEverything}));
  EXPECT_EQ(plan("selective", "9"), Plan(5, kEverything));
  EXPECT_EQ(plan("selective", "0"), Plan(5, kInput));
}

TEST(ActivationCheckpoint, ABudgetGivesUpProductsBeforeBlocks) {
  const auto within = [](double budget) { return plan("memory_budget", "2", budget); };
  EXPECT_EQ(within(1), Plan(5, kEverything));
  EXPECT_EQ(within(0.8), (Plan{kAttentionHalf, kAttentionHalf, kEverything, kEverything, kEverything}));
  EXPECT_EQ(within(0.5), Plan(5, kAttentionHalf));
  EXPECT_EQ(within(0.45), (Plan{kInput, kAttentionHalf, kAttentionHalf, kAttentionHalf, kAttentionHalf}));
  EXPECT_EQ(within(0), Plan(5, kInput));
}

TEST(ActivationCheckpoint, ABudgetGivesUpTheProductInFloat8First) {
  const auto within = [](double budget) { return plan("memory_budget", "2", budget, saved_bytes_in_float8); };
  EXPECT_EQ(within(0.9), (Plan{kGateAndUp, kGateAndUp, kGateAndUp, kEverything, kEverything}));
  EXPECT_EQ(within(0.8), (Plan{kAttentionHalf, kGateAndUp, kGateAndUp, kGateAndUp, kGateAndUp}));
}

TEST(ActivationCheckpoint, ABudgetIsNeverExceededUnlessInputsAloneExceedIt) {
  for (double budget = 0.1; budget <= 1; budget += 0.01) {
    int64_t kept = 0;
    for (const nn::BlockSaves block : plan("memory_budget", "2", budget)) kept += saved_bytes(block);
    EXPECT_LE(static_cast<double>(kept), 500 * budget + 1e-9);
  }
}

TEST(ActivationCheckpoint, OtherOptionsAreRefused) {
  for (const char* option : {"", "ops", "-1", "2x", "99999999999999999999"}) {
    EXPECT_THROW(plan("selective", option), UsageError) << option;
  }
}

}  // namespace
}  // namespace titanium::parallel
