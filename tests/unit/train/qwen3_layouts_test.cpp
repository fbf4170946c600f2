// Qwen 3 on every layout: the norms of heads are whole on each rank of tensor parallelism and see its heads alone.
#include "tests/support/compare_runs.h"
#include "tests/support/test_folder.h"
#include "titanium/models/qwen3/model.h"
#include "titanium/train/checkpointer.h"

namespace titanium::train {
namespace {

using test::configure;
using test::Layout;
using test::Outcome;

models::qwen3::Args tiny_qwen3(bool tied) {
  models::qwen3::Args args;
  args.dim = 32;
  args.n_layers = 3;
  args.n_heads = 4;
  args.n_kv_heads = 4;
  args.head_dim = 16;  // not dim / n_heads
  args.ffn_hidden_dim = 64;
  args.vocab_size = 2048;
  args.norm_eps = 1e-6;
  args.rope_theta = 1e6;
  args.max_seq_len = test::tiny_config().training.seq_len;
  args.tied_embeddings = tied;
  return args;
}

Outcome train(const Layout& layout, bool tied) {
  return test::train(configure(layout), layout.ranks(),
                     [=] { return std::make_unique<models::qwen3::Qwen3>(tiny_qwen3(tied)); });
}

const Outcome& one_rank_run(bool tied) {
  static const Outcome plain = train({"one", 1, 1, 1}, false), with_tied = train({"one", 1, 1, 1}, true);
  return tied ? with_tied : plain;
}

void with_pipeline(JobConfig& config) {
  config.parallelism.pipeline_parallel_schedule = "1F1B";
  config.parallelism.pipeline_parallel_microbatch_size = 2;
}

class Qwen3Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Qwen3Layouts, TrainAsOneRankDoes) {
  const Layout& layout = GetParam();
  for (const bool tied : {false, true}) {
    test::expect_same_run(train(layout, tied), one_rank_run(tied), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Qwen3Layouts,
    testing::Values(Layout{"ddp2", 2, 1, 1}, Layout{"fsdp2", 1, 2, 1}, Layout{"hsdp2x2", 2, 2, 1},
                    Layout{"tp2", 1, 1, 2}, Layout{"tp4", 1, 1, 4}, Layout{"fsdp2_tp2", 1, 2, 2},
                    Layout{"fsdp2_full", 1, 2, 1, [](JobConfig& c) { c.activation_checkpoint.mode = "full"; }},
                    Layout{"cp2", 1, 1, 1, [](JobConfig&) {}, 2}, Layout{"fsdp2_cp2", 1, 2, 1, [](JobConfig&) {}, 2},
                    Layout{"tp2_cp2", 1, 1, 2, [](JobConfig&) {}, 2}, Layout{"pp2", 1, 1, 1, with_pipeline, 1, 2},
                    Layout{"pp2_fsdp2", 1, 2, 1, with_pipeline, 1, 2}, Layout{"pp2_tp2", 1, 1, 2, with_pipeline, 1, 2}),
    [](const auto& info) { return info.param.name; });

// A micro-batch is one sample everywhere, so that activations have the same scales on every layout.
std::function<void(JobConfig&)> float8(const std::string& recipe, const char* schedule = "1F1B") {
  return [=](JobConfig& config) {
    config.model.converters = {"quantize.linear.float8"};
    config.quantize.linear.float8.emulate = true;
    if (recipe != "tensorwise") config.quantize.linear.float8.recipe_name = recipe;
    config.training.local_batch_size = config.parallelism.pipeline_parallel_degree > 1 ? 6 : 1;
    config.parallelism.pipeline_parallel_schedule = schedule;
    config.parallelism.pipeline_parallel_microbatch_size = 1;
    config.training.steps = 5;
  };
}

// The norms of heads stand between products in float8: their input comes out of one, their gradient goes into others.
class Qwen3Float8 : public testing::TestWithParam<const char*> {};

TEST_P(Qwen3Float8, TrainsAsOneRankDoes) {
  const std::string recipe = GetParam();
  const Outcome one = train({"one", 1, 1, 1, float8(recipe)}, false);
  // As in layouts_test.cpp, a number between two of float8 may be rounded to the other side.
  constexpr test::Limits kLimits{.loss = 1e-6, .norm = 1e-5, .parameters = 1e-2};
  for (const Layout& layout : {Layout{"fsdp2", 1, 2, 1, float8(recipe)}, Layout{"tp2", 1, 1, 2, float8(recipe)},
                               Layout{"tp4", 1, 1, 4, float8(recipe)}, Layout{"fsdp2_tp2", 1, 2, 2, float8(recipe)},
                               Layout{"pp2_tp2", 1, 2, 2, float8(recipe, "ZBVZeroBubble"), 1, 2}}) {
    SCOPED_TRACE(layout.name);
    test::expect_same_run(train(layout, false), one, kLimits);
  }
}

TEST_P(Qwen3Float8, IsARunOfItsOwnNearThatWithoutFloat8) {
  const Outcome rounded = train({"one", 1, 1, 1, float8(GetParam())}, false);
  const Outcome plain = train({"one", 1, 1, 1,
                               [](JobConfig& config) {
                                 config.training.local_batch_size = 1;
                                 config.training.steps = 5;
                               }},
                              false);
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(rounded.losses[i], plain.losses[i], 1e-3 * plain.losses[i]);
  for (const char* norm : {"q_norm", "k_norm"}) {
    const std::string name = fmt::format("layers.1.attention.{}.weight.exp_avg", norm);
    const double difference = test::relative_error(rounded.final.at(name), plain.final.at(name));
    EXPECT_GT(difference, 1e-3) << name;
    EXPECT_LT(difference, 0.3) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Qwen3Float8, testing::Values("tensorwise", "rowwise", "rowwise_with_gw_hp"),
                         [](const auto& info) { return std::string(info.param); });

// Loads what is in the folder, trains up to step `until` and saves there; the loss of each step.
std::map<int64_t, double> train_until(const Layout& layout, const std::filesystem::path& folder, int64_t until) {
  JobConfig config = configure(layout);
  config.job.dump_folder = folder.string();
  config.checkpoint.enable = true;
  config.checkpoint.interval = 4;
  config.checkpoint.last_save_model_only = false;
  config.checkpoint.load_only = until > 4;
  std::map<int64_t, double> losses;
  test::run_ranks(layout.ranks(), [&](comm::World& world) {
    TrainState run = test::build_run(config, std::make_unique<models::qwen3::Qwen3>(tiny_qwen3(true)), world);
    Checkpointer checkpointer(run);
    while (run.step < until) {
      const StepReport report = train_step(run).value();
      const double loss = loss_of_all_ranks(run, report).mean.item<double>();
      if (world.rank() == 0) losses[run.step] = loss;
      checkpointer.after_step({});
    }
    checkpointer.finish();
    run.mesh->host_group("world")->barrier();
  });
  return losses;
}

TEST(Qwen3Checkpoints, GoOnOnAnotherLayout) {
  const auto folder = test::test_folder();
  const Outcome& one = one_rank_run(/*tied=*/true);
  train_until({"fsdp2_tp2", 1, 2, 2}, folder, 4);
  for (const Layout& layout : {Layout{"one", 1, 1, 1}, Layout{"tp4", 1, 1, 4}, Layout{"hsdp2x2", 2, 2, 1},
                               Layout{"pp2_fsdp2", 1, 2, 1, with_pipeline, 1, 2}}) {
    SCOPED_TRACE(layout.name);
    const auto losses = train_until(layout, folder, 6);
    ASSERT_EQ(losses.size(), 2U);
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, one.losses[step - 1], 1e-5 * one.losses[step - 1]);
  }
}

}  // namespace
}  // namespace titanium::train
