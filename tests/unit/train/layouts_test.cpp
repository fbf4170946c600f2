// Every layout trains as one rank does. Ranks are threads here; tests/distributed has them as processes over Gloo.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <fstream>

#include "tests/support/compare_runs.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/tiny_run.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/parallel/data_parallel/fully_shard.h"
#include "titanium/train/train_step.h"
#include "titanium/train/validate.h"

namespace titanium::train {
namespace {

using test::build_run;
using test::configure;
using test::expect_same_run;
using test::Layout;
using test::Limits;
using test::Outcome;
using test::tiny_args;
using test::tiny_config;

Outcome train(const JobConfig& config, int ranks, const models::llama3::Args& args) {
  return test::train(config, ranks, [&] { return std::make_unique<models::llama3::Llama3>(args); });
}

Outcome train(const JobConfig& config, int ranks, bool tied = false) { return train(config, ranks, tiny_args(tied)); }

const Outcome& one_rank_run(bool tied = false) {
  static const Outcome plain = train(configure({"one", 1, 1, 1}), 1);
  static const Outcome with_tied = train(configure({"one", 1, 1, 1}), 1, true);
  return tied ? with_tied : plain;
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

// How keys and values travel, and who has which chunks.
std::function<void(JobConfig&)> context(
    const char* rotate_method, std::optional<std::string> balancer,
    std::function<void(JobConfig&)> more = [](JobConfig&) {}) {
  return [=](JobConfig& c) {
    c.parallelism.context_parallel_rotate_method = rotate_method;
    c.parallelism.context_parallel_load_balancer = balancer;
    more(c);
  };
}

class Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Layouts, TrainAsOneRankDoes) {
  const Layout& layout = GetParam();
  expect_same_run(train(configure(layout), layout.ranks()), one_rank_run(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All, Layouts,
    testing::Values(
        Layout{"dp2", 2, 1, 1}, Layout{"fsdp2", 1, 2, 1}, Layout{"fsdp4", 1, 4, 1}, Layout{"fsdp3_uneven", 1, 3, 1},
        Layout{"hsdp2x2", 2, 2, 1}, Layout{"tp2", 1, 1, 2}, Layout{"tp4", 1, 1, 4}, Layout{"fsdp2_tp2", 1, 2, 2},
        Layout{"dp2_tp2", 2, 1, 2}, Layout{"hsdp2x2_tp2", 2, 2, 2},
        Layout{"fsdp2_accumulation", 1, 2, 1, [](JobConfig& c) { c.training.local_batch_size = 2; }},
        Layout{"fsdp2_reduce_once", 1, 2, 1,
               [](JobConfig& c) {
                 c.training.local_batch_size = 2;
                 c.parallelism.fsdp_reduce_once = true;
               }},
        Layout{"dp2_accumulation_small_buckets", 2, 1, 1,
               [](JobConfig& c) {
                 c.training.local_batch_size = 3;
                 c.parallelism.ddp_bucket_mb = 1;
               }},
        Layout{"fsdp2_offload", 1, 2, 1, [](JobConfig& c) { c.training.enable_cpu_offload = true; }},
        Layout{"fsdp_on_one_rank", 1, 1, 1, [](JobConfig& c) { c.parallelism.fsdp_on_one_rank = true; }},
        Layout{"fsdp2_never_reshard", 1, 2, 1,
               [](JobConfig& c) { c.parallelism.fsdp_reshard_after_forward = "never"; }},
        Layout{"fsdp2_always_reshard", 1, 2, 1,
               [](JobConfig& c) { c.parallelism.fsdp_reshard_after_forward = "always"; }},
        Layout{"tp2_without_loss_parallel", 1, 1, 2, [](JobConfig& c) { c.parallelism.disable_loss_parallel = true; }},
        Layout{"async_tp2", 1, 1, 2, [](JobConfig& c) { c.parallelism.enable_async_tensor_parallel = true; }}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Context, Layouts,
    testing::Values(Layout{"cp2", 1, 1, 1, context("allgather", "headtail"), 2},
                    Layout{"cp2_in_order", 1, 1, 1, context("allgather", std::nullopt), 2},
                    Layout{"cp2_ring", 1, 1, 1, context("alltoall", "headtail"), 2},
                    Layout{"cp2_ring_in_order", 1, 1, 1, context("alltoall", std::nullopt), 2},
                    Layout{"cp4", 1, 1, 1, context("allgather", "headtail"), 4},
                    Layout{"cp4_in_order", 1, 1, 1, context("allgather", std::nullopt), 4},
                    Layout{"cp4_ring", 1, 1, 1, context("alltoall", "headtail"), 4},
                    Layout{"cp4_ring_in_order", 1, 1, 1, context("alltoall", std::nullopt), 4},
                    Layout{"fsdp2_cp2", 1, 2, 1, context("allgather", "headtail"), 2},
                    Layout{"fsdp2_cp2_ring", 1, 2, 1, context("alltoall", "headtail"), 2},
                    Layout{"dp2_cp2", 2, 1, 1, context("allgather", "headtail"), 2},
                    Layout{"hsdp2x2_cp2_ring", 2, 2, 1, context("alltoall", "headtail"), 2},
                    Layout{"tp2_cp2", 1, 1, 2, context("allgather", "headtail"), 2},
                    Layout{"tp2_cp2_ring_in_order", 1, 1, 2, context("alltoall", std::nullopt), 2},
                    Layout{"fsdp2_tp2_cp2", 1, 2, 2, context("allgather", "headtail"), 2},
                    Layout{"fsdp2_tp2_cp2_ring", 1, 2, 2, context("alltoall", "headtail"), 2},
                    Layout{"cp2_accumulation", 1, 1, 1,
                           context("alltoall", "headtail", [](JobConfig& c) { c.training.local_batch_size = 3; }), 2},
                    Layout{"fsdp2_cp2_accumulation", 1, 2, 1,
                           context("allgather", "headtail", [](JobConfig& c) { c.training.local_batch_size = 2; }), 2}),
    [](const auto& info) { return info.param.name; });

// Stages of a pipeline: a schedule, and what it is combined with.
Layout pipeline(
    const char* name, const char* schedule, int64_t ranks, int64_t replicate = 1, int64_t shard = 1, int64_t tensor = 1,
    const std::function<void(JobConfig&)>& more = [](JobConfig&) {}, int64_t context = 1) {
  const auto change = [=](JobConfig& c) {
    c.training.steps = 6;
    c.parallelism.pipeline_parallel_schedule = schedule;
    c.parallelism.pipeline_parallel_microbatch_size = 1;
    more(c);
  };
  return {name, replicate, shard, tensor, change, context, ranks};
}

constexpr int64_t kDeep = 6;  // blocks, so that eight stages have something to do

class Pipelines : public testing::TestWithParam<Layout> {};

TEST_P(Pipelines, TrainAsOneRankDoes) {
  models::llama3::Args args = tiny_args(/*tied=*/false);
  args.n_layers = kDeep;
  static const Outcome one = train(configure({"one", 1, 1, 1, [](JobConfig& c) { c.training.steps = 6; }}), 1, args);
  const Layout& layout = GetParam();
  expect_same_run(train(configure(layout), layout.ranks(), args), one, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All, Pipelines,
    testing::Values(
        pipeline("gpipe2", "GPipe", 2), pipeline("one_f_one_b2", "1F1B", 2),
        pipeline("interleaved2", "Interleaved1F1B", 2), pipeline("looped_bfs2", "LoopedBFS", 2),
        pipeline("interleaved_zero_bubble2", "InterleavedZeroBubble", 2), pipeline("zbv2", "ZBVZeroBubble", 2),
        pipeline("dual_pipe_v2", "DualPipeV", 2), pipeline("gpipe4", "GPipe", 4), pipeline("one_f_one_b4", "1F1B", 4),
        pipeline("interleaved4", "Interleaved1F1B", 4), pipeline("zero_bubble4", "InterleavedZeroBubble", 4),
        pipeline("zbv4", "zbvzerobubble", 4), pipeline("pp2_fsdp2", "1F1B", 2, 1, 2),
        pipeline("pp2_tp2", "ZBVZeroBubble", 2, 1, 1, 2), pipeline("pp2_ddp2", "InterleavedZeroBubble", 2, 2),
        pipeline("pp2_fsdp2_tp2", "Interleaved1F1B", 2, 1, 2, 2), pipeline("pp2_hsdp2x2", "ZBVZeroBubble", 2, 2, 2),
        pipeline("pp2_fsdp2_always_reshard", "1F1B", 2, 1, 2, 1,
                 [](JobConfig& c) { c.parallelism.fsdp_reshard_after_forward = "always"; }),
        pipeline("pp2_accumulation", "1F1B", 2, 1, 2, 1,
                 [](JobConfig& c) {
                   c.training.local_batch_size = 3;
                   c.parallelism.pipeline_parallel_microbatch_size = 3;
                 }),
        pipeline("pp2_full_recompute", "ZBVZeroBubble", 2, 1, 1, 1,
                 [](JobConfig& c) { c.activation_checkpoint.mode = "full"; }),
        pipeline("pp2_selective_recompute", "InterleavedZeroBubble", 2, 1, 2, 1,
                 [](JobConfig& c) {
                   c.activation_checkpoint.mode = "selective";
                   c.activation_checkpoint.selective_ac_option = "op";
                 }),
        pipeline("pp2_cp2", "1F1B", 2, 1, 1, 1, context("allgather", "headtail"), 2),
        pipeline("pp2_tp2_cp2_ring", "ZBVZeroBubble", 2, 1, 1, 2, context("alltoall", "headtail"), 2),
        pipeline("pp2_fsdp2_cp2", "Interleaved1F1B", 2, 1, 2, 1, context("alltoall", std::nullopt), 2),
        pipeline("pp2_uneven", "1F1B", 2, 1, 1, 1,
                 [](JobConfig& c) {
                   c.parallelism.module_fqns_per_model_part = {
                       {"tok_embeddings"},
                       {"layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "layers.5", "norm", "output"}};
                 })),
    [](const auto& info) { return info.param.name; });

TEST(Layout, TiedEmbeddingsTrainAsOnOneRankInAPipeline) {
  const Outcome one = train(configure({"one", 1, 1, 1, [](JobConfig& c) { c.training.steps = 6; }}), 1, /*tied=*/true);
  for (const Layout& layout : {pipeline("one_f_one_b2", "1F1B", 2), pipeline("zbv2", "ZBVZeroBubble", 2),
                               pipeline("pp2_fsdp2_tp2", "GPipe", 2, 1, 2, 2), pipeline("pp2_ddp2", "1F1B", 2, 2)}) {
    SCOPED_TRACE(layout.name);
    expect_same_run(train(configure(layout), layout.ranks(), /*tied=*/true), one, 1e-5);
  }
}

TEST(Layout, TiedEmbeddingsTrainAsOnOneRank) {
  for (const Layout& layout : {Layout{"fsdp2", 1, 2, 1}, Layout{"dp2", 2, 1, 1}, Layout{"fsdp2_tp2", 1, 2, 2},
                               Layout{"fsdp2_cp2", 1, 2, 1, context("allgather", "headtail"), 2}}) {
    expect_same_run(train(configure(layout), layout.ranks(), /*tied=*/true), one_rank_run(/*tied=*/true), 1e-5);
  }
}

TEST(Layout, RecomputationGivesTheSameRunInParallel) {
  for (const auto& [mode, option] : {std::pair{"full", "2"}, {"selective", "2"}, {"selective", "op"}}) {
    const Layout layout{"hsdp2x2_tp2", 2, 2, 2, [&](JobConfig& c) {
                          c.activation_checkpoint.mode = mode;
                          c.activation_checkpoint.selective_ac_option = option;
                          c.training.steps = 10;
                        }};
    expect_same_run(train(configure(layout), layout.ranks()), one_rank_run(), 1e-5);
    for (const char* rotate_method : {"allgather", "alltoall"}) {
      const Layout shared{"fsdp2_tp2_cp2", 1, 2, 2, context(rotate_method, "headtail", layout.change), 2};
      expect_same_run(train(configure(shared), shared.ranks()), one_rank_run(), 1e-5);
    }
  }
}

// Attention inside documents, with fewer key/value heads than heads.
TEST(Layout, DocumentsThatGoOnFromRankToRankAreWhole) {
  models::llama3::Args args = tiny_args(/*tied=*/false);
  args.n_kv_heads = 2;
  args.attn_type = "varlen";
  args.attn_mask_type = "block_causal";
  const Outcome one = train(configure({"one", 1, 1, 1}), 1, args);
  EXPECT_NE(one.losses, one_rank_run().losses);
  for (const Layout& layout : {Layout{"cp4", 1, 1, 1, context("allgather", "headtail"), 4},
                               Layout{"cp2_ring_in_order", 1, 1, 1, context("alltoall", std::nullopt), 2},
                               Layout{"fsdp2_tp2_cp2_ring", 1, 2, 2, context("alltoall", "headtail"), 2}}) {
    expect_same_run(train(configure(layout), layout.ranks(), args), one, 1e-5);
  }
}

TEST(Layout, MixedPrecisionStaysWithinTheRoundingOfBfloat16) {
  const auto bf16 = [](JobConfig& c) { c.training.mixed_precision_param = "bfloat16"; };
  const Outcome one = train(configure({"one", 1, 1, 1, bf16}), 1);
  for (const Layout& layout :
       {Layout{"fsdp2", 1, 2, 1, bf16}, Layout{"tp2", 1, 1, 2, bf16}, Layout{"dp2", 2, 1, 1, bf16},
        Layout{"fsdp2_tp2", 1, 2, 2, bf16}, Layout{"cp4", 1, 1, 1, context("allgather", "headtail", bf16), 4},
        Layout{"cp4_ring", 1, 1, 1, context("alltoall", "headtail", bf16), 4}}) {
    const Outcome outcome = train(configure(layout), layout.ranks());
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(outcome.losses[i], one.losses[i], 1e-3 * one.losses[i]) << layout.name << " step " << i + 1;
      EXPECT_NEAR(outcome.norms[i], one.norms[i], 1e-2 * one.norms[i]) << layout.name << " step " << i + 1;
    }
    for (const auto& [name, tensor] : one.initial) EXPECT_TRUE(at::equal(outcome.initial.at(name), tensor)) << name;
  }
}

// Float8 linear layers, emulated. A micro-batch is one sample everywhere: scales of activations and gradients belong to
// a micro-batch, so that with these every layout has the same scales as one rank.
std::function<void(JobConfig&)> float8(
    const char* recipe, const std::function<void(JobConfig&)>& more = [](JobConfig&) {}) {
  return [=](JobConfig& c) {
    c.model.converters = {"quantize.linear.float8"};
    c.quantize.linear.float8.emulate = true;
    if (std::string_view(recipe) != "tensorwise") c.quantize.linear.float8.recipe_name = recipe;
    c.training.local_batch_size =
        c.parallelism.pipeline_parallel_degree > 1 ? 12 / c.parallelism.data_parallel_shard_degree : 1;
    c.parallelism.pipeline_parallel_microbatch_size = 1;
    c.training.steps = 5;
    more(c);
  };
}

const Outcome& float8_on_one_rank(const std::string& recipe) {
  static std::map<std::string, Outcome> outcomes;
  if (!outcomes.contains(recipe)) outcomes[recipe] = train(configure({"one", 1, 1, 1, float8(recipe.c_str())}), 1);
  return outcomes.at(recipe);
}

// Scales are equal bit by bit, but a number that lies between two of float8 may fall to the other side when sums are
// taken in another order: that number changes by an eighth, its product by far less. Adam makes a step of the learning
// rate out of a gradient near zero, so that single parameters show it most. Over five seeds the differences were at
// most 2e-8, 5e-7 and 2e-4 on one kind of processor, and 7e-3 in a single moment on another. Scales of the parts
// instead of those of the whole gave 5e-5, 2e-4 and 2e-2 with the tensorwise recipe, 2e-5, 3e-5 and 4e-3 with the
// rowwise one.
constexpr Limits kFloat8Limits{.loss = 1e-6, .norm = 1e-5, .parameters = 1e-2};

class Float8Layouts : public testing::TestWithParam<const char*> {};

TEST_P(Float8Layouts, TrainAsOneRankDoes) {
  const char* recipe = GetParam();
  const auto zero_bubble = [](JobConfig& c) { c.parallelism.pipeline_parallel_schedule = "ZBVZeroBubble"; };
  for (const Layout& layout :
       {Layout{"dp2", 2, 1, 1, float8(recipe)}, Layout{"fsdp2", 1, 2, 1, float8(recipe)},
        Layout{"tp2", 1, 1, 2, float8(recipe)}, Layout{"tp4", 1, 1, 4, float8(recipe)},
        Layout{"fsdp2_tp2", 1, 2, 2, float8(recipe)}, Layout{"pp2_fsdp2", 1, 2, 1, float8(recipe), 1, 2},
        Layout{"pp2_tp2_zero_bubble", 1, 1, 2, float8(recipe, zero_bubble), 1, 2}}) {
    SCOPED_TRACE(layout.name);
    expect_same_run(train(configure(layout), layout.ranks()), float8_on_one_rank(recipe), kFloat8Limits);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Float8Layouts, testing::Values("tensorwise", "rowwise", "rowwise_with_gw_hp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Float8, WeightsThatTravelAsFloat8TrainAsOneRankDoes) {
  const auto gathered = [](JobConfig& c) { c.quantize.linear.float8.enable_fsdp_float8_all_gather = true; };
  const auto precomputed = [=](JobConfig& c) {
    gathered(c);
    c.quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp = true;
  };
  for (const Layout& layout : {Layout{"fsdp2", 1, 2, 1, float8("tensorwise", gathered)},
                               Layout{"fsdp3_uneven_precomputed", 1, 3, 1, float8("tensorwise", precomputed)},
                               Layout{"fsdp2_tp2_precomputed", 1, 2, 2, float8("tensorwise", precomputed)},
                               Layout{"hsdp2x2", 2, 2, 1, float8("tensorwise", gathered)},
                               Layout{"pp2_fsdp2_tp2_precomputed", 1, 2, 2, float8("tensorwise", precomputed), 1, 2}}) {
    SCOPED_TRACE(layout.name);
    expect_same_run(train(configure(layout), layout.ranks()), float8_on_one_rank("tensorwise"), kFloat8Limits);
  }
}

double largest_difference(const Outcome& a, const Outcome& b) {
  double largest = 0;
  for (size_t i = 0; i < a.losses.size(); ++i) largest = std::max(largest, std::abs(a.losses[i] / b.losses[i] - 1));
  return largest;
}

// Context parallelism, asynchronous tensor parallelism and larger micro-batches put other tokens under one scale. A
// scale that is a power of two changes only how the smallest numbers are rounded.
TEST(Float8, ScalesOfOtherTokensStayWithinTheRoundingOfFloat8) {
  const auto async = [](JobConfig& c) { c.parallelism.enable_async_tensor_parallel = true; };
  const auto batch = [](JobConfig& c) { c.training.local_batch_size = 6; };
  for (const auto& [recipe, limit] : {std::pair{"tensorwise", 2e-3}, {"rowwise", 1e-5}}) {
    for (const Layout& layout :
         {Layout{"fsdp2_cp2", 1, 2, 1, float8(recipe), 2}, Layout{"async_tp2", 1, 1, 2, float8(recipe, async)},
          Layout{"fsdp2_batch", 1, 2, 1, float8(recipe, batch)}}) {
      const Outcome outcome = train(configure(layout), layout.ranks());
      EXPECT_LT(largest_difference(outcome, float8_on_one_rank(recipe)), limit) << layout.name << " " << recipe;
    }
  }
}

TEST(Float8, EachRecipeIsARunOfItsOwnNearThatWithoutFloat8) {
  const Outcome plain = train(configure({"one", 1, 1, 1, [](JobConfig& c) { c.training.steps = 5; }}), 1);
  const Outcome &tensorwise = float8_on_one_rank("tensorwise"), &rowwise = float8_on_one_rank("rowwise"),
                &high_precision = float8_on_one_rank("rowwise_with_gw_hp");
  for (const auto& [a, b] : {std::pair{&tensorwise, &plain},
                             {&rowwise, &plain},
                             {&high_precision, &plain},
                             {&tensorwise, &rowwise},
                             {&rowwise, &high_precision}}) {
    EXPECT_GT(largest_difference(*a, *b), 5 * kFloat8Limits.loss);
    EXPECT_LT(largest_difference(*a, *b), 5e-3);
  }
}

TEST(Float8, ParametersStayInHighPrecision) {
  const Outcome& outcome = float8_on_one_rank("tensorwise");
  for (const auto& [name, tensor] : one_rank_run().initial) EXPECT_TRUE(at::equal(outcome.initial.at(name), tensor));
}

// Runs `f` as every rank of the layout, each with its own run.
void on_every_rank(const Layout& layout, const std::function<void(TrainState&)>& f) {
  const JobConfig config = configure(layout);
  test::run_ranks(layout.ranks(), [&](comm::World& world) {
    TrainState run = build_run(config, tiny_args(/*tied=*/false), world);
    f(run);
    run.mesh->host_group("world")->barrier();
  });
}

TEST(Layout, ValidationSeesTheWholeSetOnEveryLayout) {
  std::string records;
  for (int i = 0; i < 40; ++i) {
    records += R"({"text": "A text of its own, number )" + std::to_string(i * i * i) + ", " + std::string(7 * i, 'x') +
               "\"}\n";
  }
  const std::filesystem::path file = test::test_folder() / "validation.jsonl";
  write_file_atomically(file, records);
  const auto with_validation = [&](JobConfig& c) {
    c.validation.enable = true;
    c.validation.dataset = "c4_validation";
    c.validation.dataset_path = file.string();
    c.validation.local_batch_size = 5;  // the last batch of a rank is not full
    c.validation.seq_len = 32;
    c.validation.steps = -1;
    c.validation.data_streams = 12;
  };
  const auto losses = [&](Layout layout, const std::string& positions) {
    layout.change = [&, change = layout.change](JobConfig& c) {
      change(c);
      with_validation(c);
      c.training.positions = positions;
    };
    std::vector<double> losses(layout.ranks());
    on_every_rank(layout, [&](TrainState& run) {
      for (const Parameter* parameter : run.parameters) {  // so that attention is not uniform, and positions matter
        if (parameter->fqn.find("attention.w") != std::string::npos) parameter->value.detach().mul_(15);
      }
      const auto data = run.task->validation_data();
      losses[run.world->rank()] = validate(run, *data).loss;
      EXPECT_DOUBLE_EQ(validate(run, *data).loss, losses[run.world->rank()]);
      train_step(run);  // nothing gathered for the validation is left over
    });
    return losses;
  };
  const double one = losses({"one", 1, 1, 1}, "sequence")[0], restarted = losses({"one", 1, 1, 1}, "document")[0];
  EXPECT_GT(std::abs(restarted / one - 1), 1e-5);
  for (const Layout& layout : {Layout{"fsdp3", 1, 3, 1}, Layout{"dp2_tp2", 2, 1, 2}, Layout{"fsdp2", 1, 2, 1},
                               Layout{"fsdp2_cp2", 1, 2, 1, context("allgather", "headtail"), 2},
                               Layout{"tp2_cp2_ring", 1, 1, 2, context("alltoall", std::nullopt), 2},
                               pipeline("pp2_fsdp2", "ZBVZeroBubble", 2, 1, 2)}) {
    for (const double loss : losses(layout, "sequence")) EXPECT_NEAR(loss, one, 1e-6 * one) << layout.name;
    if (layout.context == 1 && layout.pipeline == 1) continue;  // the others cut no sequence and send no tokens on
    for (const double loss : losses(layout, "document")) EXPECT_NEAR(loss, restarted, 1e-6 * one) << layout.name;
  }
}

TEST(FullyShard, StoresOneNthAndHoldsAtMostTwoUnitsWhole) {
  constexpr int64_t kRanks = 4;
  int64_t whole_model = 0;
  const models::llama3::Llama3 model(tiny_args(false));
  for (const Parameter* parameter : model.parameters()) {
    whole_model += volume(parameter->global_shape);
  }
  on_every_rank({"fsdp4", 1, kRanks, 1}, [&](TrainState& run) {
    train_step(run);
    int64_t values = 0, grads = 0, states = 0;
    for (const Parameter* parameter : run.parameters) {
      values += parameter->value.numel();
      grads += parameter->grad.numel();
      EXPECT_FALSE(parameter->part_grad.defined()) << parameter->fqn;
    }
    for (const optim::StateTensor& state : run.optimizer->state()) {
      if (state.name != "step") states += state.tensor.numel();
    }
    EXPECT_EQ(values, whole_model / kRanks);
    EXPECT_EQ(grads, whole_model / kRanks);
    EXPECT_EQ(states, 2 * whole_model / kRanks);
    const auto& sharding = dynamic_cast<const parallel::FullyShard&>(*run.parallelism.data_parallel);
    EXPECT_EQ(sharding.context().whole_units, 0);
    EXPECT_LE(sharding.context().most_whole_units, 2);
  });
}

// A rank of a large run allocates its share and nothing else.
TEST(FullyShard, ARankOf64HoldsA64thOf8B) {
  constexpr int64_t kParameters = 8'030'261'248, kRanks = 64;
  JobConfig config = tiny_config();
  config.model.flavor = "8B";
  config.training.global_batch_size = -1;
  config.training.local_batch_size = 1;
  config.training.data_streams = kRanks;
  const int64_t before = resident_bytes();
  const TrainState run = build_train_state(config, at::kCPU, comm::make_fake_world(0, kRanks));
  int64_t held = 0;
  for (const Parameter* parameter : run.parameters) held += parameter->value.numel();
  EXPECT_EQ(held, kParameters / kRanks);
  // Parameters and two moments, which zeros leaves to the kernel until they are written.
  EXPECT_LT(resident_bytes() - before, 3 * 4 * held + (int64_t{300} << 20));
}

// What the units of one rank do in one step.
std::vector<std::string> events_of_a_step(const Layout& layout) {
  std::vector<std::string> events;
  on_every_rank(layout, [&](TrainState& run) {
    if (run.world->rank() == 0) {
      dynamic_cast<parallel::FullyShard&>(*run.parallelism.data_parallel)
          .observe([&](std::string_view event, const std::string& unit) {
            events.push_back(std::string(event) + " " + unit);
          });
    }
    train_step(run);
  });
  return events;
}

TEST(FullyShard, TheNextUnitArrivesAndTheLastGradientsLeaveWhileAUnitComputes) {
  const std::vector<std::string> events = events_of_a_step({"fsdp2", 1, 2, 1});
  const auto at = [&](const std::string& event, const std::string& after = "") {
    const auto begin = after.empty() ? events.begin() : std::find(events.begin(), events.end(), after);
    const auto found = std::find(begin, events.end(), event);
    EXPECT_NE(found, events.end()) << event;
    return found - events.begin();
  };
  const std::vector<std::string> units = {"tok_embeddings", "layers.0", "layers.1", "layers.2", "head"};
  for (size_t i = 0; i + 1 < units.size(); ++i) {
    EXPECT_LT(at("gather " + units[i + 1]), at("after forward " + units[i]));
  }
  for (size_t i = units.size() - 1; i > 1; --i) {
    const std::string backward = "backward " + units[i];
    EXPECT_LT(at("gather " + units[i - 1], backward), at("after backward " + units[i]));
    EXPECT_LT(at("reduce " + units[i]), at("after backward " + units[i - 1]));
  }
  // A look-up has no use for the table in its backward.
  EXPECT_EQ(std::find(events.begin() + at("backward head"), events.end(), "gather tok_embeddings"), events.end());
}

}  // namespace
}  // namespace titanium::train
