#include "titanium/train/train_step.h"

#include <ATen/Context.h>

#include "tests/support/source_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_llama.h"
#include "titanium/base/error.h"
#include "titanium/models/llama3/model.h"
#include "titanium/optim/adam.h"
#include "titanium/parallel/activation_checkpoint.h"
#include "titanium/train/host_memory.h"

namespace titanium::train {
namespace {

JobConfig tiny_config() {
  JobConfig config;
  config.model.hf_assets_path = source_folder() / "tests/assets/tokenizer";
  config.training.seq_len = 48;
  config.training.local_batch_size = 8;
  config.training.dataset = "c4_test";
  config.training.dataset_path = source_folder() / "tests/assets/c4_test";
  config.training.mixed_precision_param = "float32";
  config.activation_checkpoint.mode = "none";
  config.optimizer.lr = 1e-2;
  return config;
}

TrainState tiny_run(const JobConfig& config, int64_t accumulation_steps = 1) {
  const models::llama3::Args args = test::tiny_llama(config.training.seq_len, /*kv_heads=*/2);
  TrainState run = build_train_state(config, at::kCPU, nullptr,
                                     plan_model(config, 1, 0, std::make_unique<models::llama3::Llama3>(args)));
  run.optimizer = std::make_unique<optim::Adam>(run.parameters, optim::AdamOptions{});
  run.optimizer->materialize();
  run.schedule = optim::plan_lr_schedule({.total_steps = 100, .warmup_steps = 2});
  run.accumulation_steps = accumulation_steps;
  return run;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<Tensor> values, grads;
};

Outcome train(TrainState run, int steps) {
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const StepReport report = train_step(run).value();
    outcome.losses.push_back(report.loss.item<double>());
    outcome.norms.push_back(report.grad_norm.item<double>());
  }
  for (const Parameter* parameter : run.parameters) {
    outcome.values.push_back(parameter->value.detach());
    outcome.grads.push_back(parameter->grad);
  }
  return outcome;
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_TRUE(a.values[i].equal(b.values[i])) << i;
    EXPECT_TRUE(a.grads[i].equal(b.grads[i])) << i;
  }
}

class TrainStep : public ::testing::Test {
 protected:
  void SetUp() override { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

TEST_F(TrainStep, TheSameSeedGivesTheSameBits) {
  expect_same_bits(train(tiny_run(tiny_config()), 4), train(tiny_run(tiny_config()), 4));
}

TEST_F(TrainStep, AnotherSeedGivesOtherWeights) {
  JobConfig other = tiny_config();
  other.debug.seed = 1;
  EXPECT_NE(train(tiny_run(tiny_config()), 1).losses, train(tiny_run(other), 1).losses);
}

TEST_F(TrainStep, LossFalls) {
  const std::vector<double> losses = train(tiny_run(tiny_config()), 12).losses;
  EXPECT_NEAR(losses.front(), std::log(2048), 0.7);
  EXPECT_LT(losses.back(), losses.front() - 0.5);
}

TEST_F(TrainStep, ActivationCheckpointModesGiveTheSameBits) {
  const std::pair<const char*, const char*> modes[] = {
      {"full", "2"}, {"selective", "1"}, {"selective", "2"}, {"selective", "op"}};
  for (const char* precision : {"float32", "bfloat16"}) {
    JobConfig config = tiny_config();
    config.training.mixed_precision_param = precision;
    const Outcome expected = train(tiny_run(config), 3);
    for (const auto& [mode, option] : modes) {
      SCOPED_TRACE(fmt::format("{} {} {}", precision, mode, option));
      config.activation_checkpoint.mode = mode;
      config.activation_checkpoint.selective_ac_option = option;
      expect_same_bits(train(tiny_run(config), 3), expected);
    }
  }
}

TEST_F(TrainStep, FourTimesTwoEqualsOneTimesEight) {
  JobConfig two = tiny_config();
  two.training.local_batch_size = 2;
  const Outcome whole = train(tiny_run(tiny_config()), 3), parts = train(tiny_run(two, /*accumulation_steps=*/4), 3);
  for (size_t step = 0; step < whole.losses.size(); ++step) {
    EXPECT_NEAR(parts.losses[step], whole.losses[step], 1e-6 * whole.losses[step]);
    EXPECT_NEAR(parts.norms[step], whole.norms[step], 1e-5 * whole.norms[step]);
  }
  // Adam's first steps are signs: where a gradient is rounding noise, an update may differ in full.
  for (size_t i = 0; i < whole.values.size(); ++i) EXPECT_CLOSE(parts.values[i], whole.values[i], 1e-3);
}

TEST_F(TrainStep, AStepCountsItsTokens) {
  JobConfig two = tiny_config();
  two.training.local_batch_size = 2;
  TrainState run = tiny_run(two, /*accumulation_steps=*/4);
  EXPECT_EQ(train_step(run)->tokens, 8 * 48);
  EXPECT_EQ(train_step(run)->tokens, 8 * 48);
  EXPECT_EQ(run.tokens_seen, 2 * 8 * 48);
  EXPECT_EQ(run.step, 2);
}

TEST_F(TrainStep, AGradientThatIsNotFiniteLeavesParametersAlone) {
  TrainState run = tiny_run(tiny_config());
  train_step(run);
  std::vector<Tensor> before;
  for (const Parameter* parameter : run.parameters) before.push_back(parameter->value.detach().clone());
  Parameter& poisoned = *run.parameters.back();
  const double healthy = poisoned.value[0][0].item<double>();
  const auto poison = [&](double value) {
    poisoned.value.detach()[0][0].fill_(value);
    poisoned.value_changed();
  };
  poison(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(std::isfinite(train_step(run)->grad_norm.item<double>()));
  poison(healthy);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(run.parameters[i]->value.equal(before[i])) << i;
  EXPECT_TRUE(std::isfinite(train_step(run)->grad_norm.item<double>()));
  EXPECT_FALSE(poisoned.value.equal(before.back()));
}

TEST(EarlyStep, IsTheSameUpdateWithOneUnitsGradientsAtATime) {
  for (const auto& [mode, rounding] : {std::pair{"none", false}, {"full", false}, {"full", true}}) {
    JobConfig config = tiny_config();
    config.activation_checkpoint.mode = mode;
    config.optimizer.bf16_stochastic_rounding = rounding;
    if (rounding) config.training.dtype = "bfloat16";
    config.training.max_norm = -1;
    TrainState late = build_train_state(config, at::kCPU);
    config.optimizer.early_step_in_backward = true;
    TrainState early = build_train_state(config, at::kCPU);
    for (int step = 0; step < 3; ++step) {
      const auto expected = train_step(late), found = train_step(early);
      EXPECT_EQ(found->loss.item<double>(), expected->loss.item<double>());
      EXPECT_NEAR(found->grad_norm.item<double>(), expected->grad_norm.item<double>(), 1e-12);
    }
    for (size_t i = 0; i < late.parameters.size(); ++i) {
      EXPECT_TRUE(early.parameters[i]->value.equal(late.parameters[i]->value)) << late.parameters[i]->fqn;
      EXPECT_FALSE(early.parameters[i]->grad.defined());
    }
  }
}

TEST(EarlyStep, TakesAwayItsOwnHooksAlone) {
  const TrainState run = tiny_run(tiny_config());
  nn::Unit& unit = *run.model->units().back();
  const auto other = std::make_shared<nn::UnitHook>();
  unit.enclose(other);
  {
    const EarlyStep early(run.model->units(), *run.optimizer, *run.parallelism.data_parallel, *run.mesh);
    EXPECT_EQ(unit.hooks.size(), 2U);
    EXPECT_EQ(unit.hooks.back(), other);
  }
  EXPECT_EQ(unit.hooks, std::vector<std::shared_ptr<nn::UnitHook>>{other});
}

TEST(EarlyStep, LeavesTheGradientsOutOfThePlan) {
  JobConfig config;
  config.model.flavor = "8B";
  config.activation_checkpoint.mode = "full";
  config.training.local_batch_size = 1;
  config.training.max_norm = -1;
  const auto saved = [&](int64_t ranks) {
    config.optimizer.early_step_in_backward = false;
    const int64_t late = plan_model(config, ranks).memory.total();
    config.optimizer.early_step_in_backward = true;
    return late - plan_model(config, ranks).memory.total();
  };
  constexpr int64_t kParameters = 8'030'261'248;
  EXPECT_GT(saved(1), 3 * kParameters);  // of 4 bytes each
  EXPECT_GT(saved(4), kParameters / 2);  // sharded
  config.parallelism.data_parallel_replicate_degree = 4;
  config.parallelism.data_parallel_shard_degree = 1;
  EXPECT_EQ(saved(4), 0);  // in buckets
}

TEST(EarlyStep, IsRefusedInAPipeline) {
  JobConfig config = tiny_config();
  config.optimizer.early_step_in_backward = true;
  config.training.max_norm = -1;
  config.parallelism.pipeline_parallel_degree = 2;
  try {
    plan_model(config, /*world_size=*/2);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "optimizer.early_step_in_backward updates a block after its only backward of a step, and with "
                 "parallelism.pipeline_parallel_degree = 2 it has one for each micro-batch. Leave one of the two out.");
  }
}

TEST(MemoryPlan, WhatDoesNotFitIsRefusedWithTheRemedies) {
  JobConfig config;
  config.model.flavor = "8B";
  config.training.seq_len = 8192;
  config.training.local_batch_size = 1;
  config.activation_checkpoint.mode = "full";
  const MemoryPlan plan = plan_model(config).memory;
  constexpr int64_t kParameters = 8'030'261'248, kGiB = int64_t{1} << 30;
  EXPECT_EQ(plan.parameters, 4 * kParameters);
  EXPECT_EQ(plan.computed_copy, 2 * kParameters);
  EXPECT_EQ(plan.gradients, 4 * kParameters);
  EXPECT_EQ(plan.optimizer, 8 * kParameters);
  EXPECT_EQ(plan.activations, int64_t{32} * 8192 * 4096 * 2);
  EXPECT_NO_THROW(check_fits(plan, plan.total()));
  try {
    check_fits(plan, 80 * kGiB);
    FAIL() << "134 GiB of states do not fit into 80 GiB";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string_view(error.what()).find("but the device has 80.0 GiB"), std::string_view::npos);
    EXPECT_NE(std::string_view(error.what()).find("training.dtype = \"bfloat16\""), std::string_view::npos);
  }
}

TEST(MemoryPlan, WhatTheHostCannotHoldIsRefusedOnTheCpu) {
  JobConfig config;
  config.model.flavor = "405B";
  config.training.device = "cpu";
  try {
    build_train_state(config, Device(at::kCPU), nullptr);
    FAIL() << "6 TiB of states do not fit into this machine";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string_view(error.what()).find("GiB, but this machine has "), std::string_view::npos)
        << error.what();
  }
  EXPECT_GT(host_memory(), int64_t{1} << 28);
}

TEST(MemoryPlan, ABatchThat64BitsCannotCountIsRefused) {
  JobConfig config;
  config.training.local_batch_size = int64_t{1} << 30;
  config.training.seq_len = int64_t{1} << 30;
  try {
    plan_model(config);
    FAIL() << "a plan of 2^60 tokens";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string_view(error.what())
                  .find("training.local_batch_size = 1073741824 with 1073741824 tokens in a sample needs more memory "
                        "than any device has: about "),
              0U)
        << error.what();
  }
}

TEST(MemoryPlan, GradientsInBucketsAreThereFromTheStart) {
  constexpr int64_t kRanks = 2;
  const auto plan = [](int64_t replicas, int64_t micro_batches) {
    JobConfig config;
    config.model.flavor = "8B";
    config.training.local_batch_size = 1;
    config.training.seq_len = 8192;
    config.training.global_batch_size = replicas * micro_batches;
    config.parallelism.data_parallel_replicate_degree = replicas;
    config.parallelism.data_parallel_shard_degree = 1;
    return plan_model(config, replicas).memory;
  };
  EXPECT_GT(plan(1, 1).shared, 0) << "without buckets gradients take the room of activations";
  EXPECT_EQ(plan(1, 2).shared, 0);
  EXPECT_EQ(plan(kRanks, 1).shared, 0);
  EXPECT_EQ(plan(kRanks, 1).total(), plan(kRanks, 2).total());
}

TEST(MemoryPlan, RecomputingKeepsLess) {
  const auto activations = [](const char* mode, const char* option) {
    JobConfig config;
    config.activation_checkpoint.mode = mode;
    config.activation_checkpoint.selective_ac_option = option;
    return plan_model(config).memory.activations;
  };
  EXPECT_LT(activations("full", "2"), activations("selective", "2"));
  EXPECT_LT(activations("selective", "2"), activations("none", "2"));
  EXPECT_LT(activations("selective", "op"), activations("none", "2"));
}

TEST(MemoryPlan, CopiesInFloat8TakeTwoBytesWhereSeveralMicroBatchesUseThem) {
  constexpr int64_t kBlocks = 32, kRanks = 8;
  constexpr int64_t kOfBlock = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336, kAll = kBlocks * kOfBlock;
  const auto plan = [](int64_t ranks, const std::function<void(config::Float8Linear&)>& change, int64_t batches = 1) {
    JobConfig config;
    config.training.global_batch_size = config.training.local_batch_size * ranks * batches;
    config.model.flavor = "8B";
    config.model.converters = {"quantize.linear.float8"};
    config.quantize.linear.float8.filter_fqns = {"output"};
    change(config.quantize.linear.float8);
    return plan_model(config, ranks).memory;
  };
  const auto none = [](config::Float8Linear& c) { c.filter_fqns = {"output", "layers"}; };
  const auto tensorwise = [](config::Float8Linear&) {};
  const auto gathered = [](config::Float8Linear& c) { c.enable_fsdp_float8_all_gather = true; };
  const MemoryPlan bf16 = plan(1, none), bf16_shards = plan(kRanks, none);
  EXPECT_EQ(plan(1, tensorwise).computed_copy, bf16.computed_copy - 2 * kAll);
  EXPECT_EQ(plan(1, tensorwise, 2).computed_copy, bf16.computed_copy);
  // Two blocks are whole at a time; one is on its way.
  EXPECT_EQ(plan(kRanks, tensorwise).computed_copy, bf16_shards.computed_copy);
  EXPECT_EQ(plan(kRanks, tensorwise, 2).computed_copy, bf16_shards.computed_copy + 4 * kOfBlock);
  const MemoryPlan travelling = plan(kRanks, gathered);
  EXPECT_EQ(travelling.computed_copy, bf16_shards.computed_copy - 2 * kOfBlock + kAll / kRanks);
  EXPECT_EQ(travelling.communication, bf16_shards.communication - kOfBlock);
}

// Experts of DeepSeek's 16B, 64 of 1408 x 2048, of which a token chooses 6. The gradient of their rows takes w1 and w3
// in float8, before these weights have gradients; unless they have them from earlier micro-batches, or in buckets.
TEST(MemoryPlan, CopiesOfExpertsInFloat8AddToThePeakWhereGradientsAreThereBefore) {
  constexpr int64_t kTokens = 256, kRows = 6 * kTokens, kExperts = 64, kDim = 2048, kHidden = 1408;
  const auto working = [](int64_t ranks, int64_t replicas, int64_t micro_batches, bool reduce_once = false) {
    JobConfig config;
    config.model = {.name = "deepseek_v3", .flavor = "16B"};
    config.model.converters = {"quantize.grouped_mm.float8"};
    config.quantize.grouped_mm.float8.fqns = {"experts"};
    config.training.seq_len = kTokens;
    config.training.local_batch_size = 1;
    config.training.global_batch_size = ranks * micro_batches;
    config.activation_checkpoint.mode = "none";
    config.parallelism.data_parallel_replicate_degree = replicas;
    config.parallelism.fsdp_reduce_once = reduce_once;
    return plan_model(config, ranks).memory.working;
  };
  // What the operators have made by then and still hold.
  constexpr int64_t kWeights = 2 * kExperts * kDim * (kHidden + 4);         // a byte each, and a scale for each line
  constexpr int64_t kLine = kRows + 127 * kExperts;                         // rows of each expert, filled up
  constexpr int64_t kOutput = kDim * (kRows + kLine);                       // its gradient, by rows and by columns
  constexpr int64_t kProducts = 2 * kHidden * kRows + 3 * kHidden * kLine;  // gradients of gate and up; SwiGLU
  constexpr int64_t kGradOfRows = 2 * kDim * kRows, kAround = 6 * 2 * kDim * kTokens;  // in bf16
  constexpr int64_t kWithCopies = kWeights + kOutput + kProducts + kGradOfRows + kAround;
  EXPECT_LT(working(1, 1, 1), kWeights);
  EXPECT_EQ(working(1, 1, 2), kWithCopies);
  EXPECT_EQ(working(2, 2, 1), kWithCopies) << "in buckets";
  EXPECT_LT(working(2, 1, 2), kWeights) << "gradients of whole weights leave after each micro-batch";
  EXPECT_EQ(working(2, 1, 2, /*reduce_once=*/true), kWithCopies);
}

TEST(MemoryPlan, RowsThatAreMadeOnceMoreAreBesideTheCopiesOfExpertsInFloat8) {
  const auto more_than_where_they_are_kept = [](int64_t ranks) {
    JobConfig config;
    config.model = {.name = "deepseek_v3", .flavor = "16B"};
    config.model.converters = {"quantize.grouped_mm.float8"};
    config.quantize.grouped_mm.float8.fqns = {"experts"};
    config.training.seq_len = 256;
    config.parallelism.expert_parallel_degree = ranks;
    const ModelPlan plan = plan_model(config, ranks);
    const nn::SaveLevels levels = plan.model->block(1)->levels(at::kBFloat16);
    EXPECT_EQ(levels[2].name, "attention_half");
    EXPECT_EQ(levels[1].backward_bytes_beside_copies, levels[0].backward_bytes_beside_copies);
    return levels[2].backward_bytes_beside_copies - levels[1].backward_bytes_beside_copies;
  };
  constexpr int64_t kChoices = 6, kDim = 2048;
  EXPECT_EQ(more_than_where_they_are_kept(1), kChoices * kDim);
  EXPECT_EQ(more_than_where_they_are_kept(2), kChoices * kDim * 3) << "and in bf16";
}

// With four ranks that share rows and two times two that share experts, only experts are sharded and gathered.
TEST(MemoryPlan, EachUnitIsGatheredOverTheRanksThatItsOwnWeightsAreShardedOver) {
  const auto communication = [](int64_t expert) {
    JobConfig config;
    config.model = {.name = "qwen3", .flavor = "debugmodel_moe"};
    config.training.seq_len = 64;
    config.parallelism.tensor_parallel_degree = 4;
    config.parallelism.expert_parallel_degree = expert;
    return plan_model(config, 4).memory.communication;
  };
  constexpr int64_t kOfExpert = 3 * 768 * 256;
  constexpr int64_t kOuter = 2048 / 4 * 256 + 256;     // output and its norm
  constexpr int64_t kGradient = 2 + 4, kGathered = 2;  // bytes per element
  EXPECT_EQ(communication(4), (16 * kOfExpert + kOuter) * kGradient);
  EXPECT_EQ(communication(2), (32 * kOfExpert + kOuter) * kGradient + 32 * kOfExpert * kGathered);
}

}  // namespace
}  // namespace titanium::train
