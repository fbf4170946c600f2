#include "titanium/parallel/activation_checkpoint.h"

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

// The levels of a block that is like Llama's.
constexpr size_t kEverything = 0, kGateAndUp = 1, kAttentionHalf = 2, kInput = 3;
using Plan = std::vector<size_t>;

nn::SaveLevels levels(int64_t in_float8 = 0) {
  return {{"everything", 100 + in_float8, 0}, {"gate_and_up", 100, 0}, {"attention_half", 50, 0}, {"input", 10, 0}};
}

Plan plan(const std::string& mode, const std::string& option = "2", double budget = 0.5,
          const std::vector<nn::SaveLevels>& blocks = std::vector(5, levels())) {
  config::ActivationCheckpoint options;
  options.mode = mode;
  options.selective_ac_option = option;
  options.memory_budget = budget;
  return plan_activation_checkpoint(options, blocks);
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
  const auto within = [](double budget) {
    return plan("memory_budget", "2", budget, std::vector(5, levels(/*in_float8=*/20)));
  };
  EXPECT_EQ(within(0.9), (Plan{kGateAndUp, kGateAndUp, kGateAndUp, kEverything, kEverything}));
  EXPECT_EQ(within(0.8), (Plan{kAttentionHalf, kGateAndUp, kGateAndUp, kGateAndUp, kGateAndUp}));
}

TEST(ActivationCheckpoint, ABudgetIsNeverExceededUnlessInputsAloneExceedIt) {
  for (double budget = 0.1; budget <= 1; budget += 0.01) {
    int64_t kept = 0;
    for (const size_t level : plan("memory_budget", "2", budget)) kept += levels()[level].kept_bytes;
    EXPECT_LE(static_cast<double>(kept), 500 * budget + 1e-9);
  }
}

TEST(ActivationCheckpoint, BlocksOfOneModelHaveListsOfTheirOwn) {
  const nn::SaveLevels two = {{"everything", 60, 0}, {"input", 10, 0}};
  const nn::SaveLevels one = {{"input", 10, 0}};
  const std::vector<nn::SaveLevels> blocks = {two, levels(), one};
  EXPECT_EQ(plan("none", "", 0, blocks), (Plan{0, kEverything, 0}));
  EXPECT_EQ(plan("full", "", 0, blocks), (Plan{1, kInput, 0}));
  EXPECT_EQ(plan("selective", "op", 0, blocks), (Plan{0, kAttentionHalf, 0}));
  EXPECT_EQ(plan("selective", "2", 0, blocks), (Plan{0, kInput, 0}));
  // A budget of 170 bytes takes products before whole blocks, whichever block has them.
  EXPECT_EQ(plan("memory_budget", "", 0.75, blocks), (Plan{0, kAttentionHalf, 0}));
  EXPECT_EQ(plan("memory_budget", "", 0.5, blocks), (Plan{1, kAttentionHalf, 0}));
  EXPECT_EQ(plan("memory_budget", "", 0.2, blocks), (Plan{1, kInput, 0}));
}

TEST(ActivationCheckpoint, OtherOptionsAreRefused) {
  for (const char* option : {"", "ops", "-1", "2x", "99999999999999999999"}) {
    EXPECT_THROW(plan("selective", option), UsageError) << option;
  }
}

}  // namespace
}  // namespace titanium::parallel
