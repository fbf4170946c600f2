#include "titanium/train/build_optimizer.h"

#include <gtest/gtest.h>

#include "tests/support/source_folder.h"
#include "tests/support/tiny_llama.h"
#include "titanium/base/error.h"
#include "titanium/models/llama3/model.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

JobConfig tiny_config() {
  JobConfig config;
  config.model.hf_assets_path = source_folder() / "tests/assets/tokenizer";
  config.training.dataset_path = source_folder() / "tests/assets/c4_test";
  config.training.seq_len = 32;
  config.training.local_batch_size = 4;
  config.training.mixed_precision_param = "float32";
  config.optimizer.lr = 2e-4;
  return config;
}

ModelPlan plan(const JobConfig& config, int64_t ranks = 1, int rank = 0,
               const models::TrainingDefaults& defaults = {}) {
  return plan_model(config, ranks, rank,
                    std::make_unique<models::llama3::Llama3>(test::tiny_llama(config.training.seq_len)), defaults);
}

optim::OptionValue option(const ModelPlan& plan, const std::string& fqn, const std::string& name) {
  for (const Parameter* parameter : plan.model->parameters()) {
    if (parameter->fqn != fqn) continue;
    for (const auto& [key, value] : plan.update.optimizer->options_of(*parameter, {.now = 1, .initial = 1})) {
      if (key == name) return value;
    }
  }
  return "missing";
}

TEST(BuildOptimizer, GroupsTakeTheParametersThatTheyName) {
  JobConfig config = tiny_config();
  config.optimizer.param_groups = {{"norm", "weight_decay=0"}, {"tok_embeddings", "lr_factor=0.5"}};
  const ModelPlan planned = plan(config);
  EXPECT_EQ(option(planned, "layers.1.ffn_norm.weight", "weight_decay"), optim::OptionValue(0.0));
  EXPECT_EQ(option(planned, "norm.weight", "weight_decay"), optim::OptionValue(0.0));
  EXPECT_EQ(option(planned, "layers.1.attention.wq.weight", "weight_decay"), optim::OptionValue(0.1));
  EXPECT_EQ(option(planned, "tok_embeddings.weight", "lr"), optim::OptionValue(0.5));
  EXPECT_EQ(option(planned, "output.weight", "lr"), optim::OptionValue(1.0));
  EXPECT_EQ(planned.update.optimizer->parameters().size(), planned.model->parameters().size());
}

TEST(BuildOptimizer, AGroupThatTakesNothingIsRefused) {
  JobConfig config = tiny_config();
  config.optimizer.param_groups = {{"norm", "weight_decay=0"}, {"ffn_norm", "lr_factor=2"}};
  try {
    plan(config);
    FAIL() << "the first group takes every norm";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "optimizer.param_groups: no parameter is left for the group \"ffn_norm\". Names are such as "
                 "output.weight; the first group that matches takes a parameter.");
  }
}

TEST(BuildOptimizer, GroupsOfTheFamilyTakeWhatThoseOfTheJobLeave) {
  JobConfig config = tiny_config();
  config.optimizer.param_groups = {{"ffn_norm", "weight_decay=0.5"}};
  const ModelPlan planned =
      plan(config, 1, 0, {.parameter_groups = {{"norm", "weight_decay=0"}, {"ffn_norm", "weight_decay=3"}}});
  EXPECT_EQ(option(planned, "layers.1.ffn_norm.weight", "weight_decay"), optim::OptionValue(0.5));
  EXPECT_EQ(option(planned, "layers.1.attention_norm.weight", "weight_decay"), optim::OptionValue(0.0));
  EXPECT_EQ(option(planned, "output.weight", "weight_decay"), optim::OptionValue(0.1));
}

// The whole model decides, not the stage that a rank has.
TEST(BuildOptimizer, AGroupMayBeOnAnotherRankOfAPipeline) {
  JobConfig config = tiny_config();
  config.parallelism.pipeline_parallel_degree = 2;
  config.parallelism.pipeline_parallel_schedule = "GPipe";
  config.optimizer.param_groups = {{"tok_embeddings", "weight_decay=0"}};
  EXPECT_EQ(option(plan(config, 2, 0), "tok_embeddings.weight", "weight_decay"), optim::OptionValue(0.0));
  EXPECT_EQ(option(plan(config, 2, 1), "output.weight", "weight_decay"), optim::OptionValue(0.1));
}

TEST(BuildOptimizer, NormsWithoutDecayStayWhereTheirGradientsLeaveThem) {
  JobConfig config = tiny_config();
  config.training.steps = 1;
  config.lr_scheduler.warmup_steps = 0;
  config.optimizer.weight_decay = 1000;  // a step shrinks a weight by a fifth
  config.optimizer.param_groups = {{"norm", "weight_decay=0"}};
  const auto largest_norm_weight = [&] {
    TrainState run = build_train_state(config, at::kCPU, nullptr, plan(config));
    train_step(run);
    double largest = 0;
    for (const Parameter* parameter : run.parameters) {
      if (parameter->fqn == "norm.weight") largest = parameter->value.max().item<double>();
    }
    return largest;
  };
  EXPECT_NEAR(largest_norm_weight(), 1, 1e-3);
  config.optimizer.param_groups = {};
  EXPECT_NEAR(largest_norm_weight(), 0.8, 1e-3);
}

}  // namespace
}  // namespace titanium::train
