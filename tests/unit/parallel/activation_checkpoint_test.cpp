#include "titanium/parallel/activation_checkpoint.h"

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

using enum nn::BlockSaves;
using Plan = std::vector<nn::BlockSaves>;

Plan plan(const std::string& mode, const std::string& option = "2") {
  config::ActivationCheckpoint options;
  options.mode = mode;
  options.selective_ac_option = option;
  return plan_activation_checkpoint(options, 5);
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

TEST(ActivationCheckpoint, OtherOptionsAreRefused) {
  for (const char* option : {"", "ops", "-1", "2x", "99999999999999999999"}) {
    EXPECT_THROW(plan("selective", option), UsageError) << option;
  }
}

}  // namespace
}  // namespace titanium::parallel
