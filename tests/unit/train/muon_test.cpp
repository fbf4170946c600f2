// Muon in training runs: every layout trains as one rank does, and a checkpoint goes from one to another.
#include "titanium/optim/muon.h"

#include "tests/support/muon_runs.h"
#include "titanium/base/error.h"

namespace titanium::train {
namespace {

using test::Layout;
using test::muon_config;
using test::Tensors;

auto make_model() { return std::make_unique<models::llama3::Llama3>(test::tiny_args(/*tied=*/false)); }

test::Trained train_until(const JobConfig& config, const Layout& layout, int64_t until) {
  return test::train_until(config, layout, until, make_model);
}

const Tensors& one_rank_run() {
  static const Tensors end = train_until(muon_config({"one", 1, 1, 1}), {"one", 1, 1, 1}, 6).end;
  return end;
}

class MuonLayouts : public testing::TestWithParam<Layout> {};

TEST_P(MuonLayouts, TrainAsOneRankDoes) {
  const Layout& layout = GetParam();
  test::expect_close(train_until(muon_config(layout), layout, 6).end, one_rank_run(), 1e-5);
}

std::function<void(JobConfig&)> with_schedule(const char* schedule) {
  return [=](JobConfig& config) {
    config.parallelism.pipeline_parallel_schedule = schedule;
    config.parallelism.pipeline_parallel_microbatch_size = 1;
  };
}

INSTANTIATE_TEST_SUITE_P(
    All, MuonLayouts,
    testing::Values(Layout{"dp2", 2, 1, 1}, Layout{"fsdp2", 1, 2, 1}, Layout{"fsdp3_uneven", 1, 3, 1},
                    Layout{"hsdp2x2", 2, 2, 1}, Layout{"tp2", 1, 1, 2}, Layout{"fsdp2_tp2", 1, 2, 2},
                    Layout{"dp2_tp2", 2, 1, 2}, Layout{"fsdp2_cp2", 1, 2, 1, [](JobConfig&) {}, 2},
                    Layout{"pp2", 1, 1, 1, [](JobConfig&) {}, 1, 2},
                    Layout{"pp2_fsdp2", 1, 2, 1, [](JobConfig&) {}, 1, 2},
                    Layout{"pp2_fsdp2_interleaved", 1, 2, 1, with_schedule("Interleaved1F1B"), 1, 2},
                    Layout{"pp2_tp2_zbv", 1, 1, 2, with_schedule("ZBVZeroBubble"), 1, 2},
                    Layout{"pp2_hsdp2x2_dual_pipe_v", 2, 2, 1, with_schedule("DualPipeV"), 1, 2},
                    Layout{"fsdp2_offload", 1, 2, 1, [](JobConfig& c) { c.training.enable_cpu_offload = true; }}),
    [](const auto& info) { return info.param.name; });

TEST(MuonRun, MatricesOfBlocksAreMuonsAndTheRestAdams) {
  int64_t matrices = 0;
  for (const auto& [name, tensor] : one_rank_run()) {
    if (name.ends_with(".momentum_buffer")) {
      ++matrices;
      EXPECT_TRUE(name.starts_with("layers.")) << name;
      EXPECT_EQ(tensor.dim(), 2) << name;
    }
    const bool of_block = name.starts_with("layers.") && name.find("norm") == std::string::npos;
    EXPECT_FALSE(name.ends_with(".exp_avg") && of_block) << name;
  }
  EXPECT_EQ(matrices, 3 * 7);
  EXPECT_TRUE(one_rank_run().contains("tok_embeddings.weight.exp_avg"));
  EXPECT_TRUE(one_rank_run().contains("layers.0.ffn_norm.weight.exp_avg"));
}

TEST(MuonRun, ProductsInBfloat16StayNear) {
  JobConfig config = muon_config({"one", 1, 1, 1});
  config.optimizer.muon.ns_dtype = "bfloat16";
  const Tensors rounded = train_until(config, {"one", 1, 1, 1}, 6).end;
  const std::string name = "layers.1.feed_forward.w1.weight";
  EXPECT_GT(test::relative_error(rounded.at(name), one_rank_run().at(name)), 1e-5);
  test::expect_close(rounded, one_rank_run(), 2e-2);
}

// The default of ns_dtype. A gradient that is another sum of the same terms may be rounded to the other side.
TEST(MuonRun, ProductsInBfloat16AreNearlyTheSameOnAllLayouts) {
  const auto rounded = [](const Layout& layout) {
    JobConfig config = muon_config(layout);
    config.optimizer.muon.ns_dtype = "bfloat16";
    return train_until(config, layout, 6).end;
  };
  const Tensors one = rounded({"one", 1, 1, 1});
  for (const Layout& layout :
       {Layout{"fsdp3_uneven", 1, 3, 1}, Layout{"hsdp2x2", 2, 2, 1}, Layout{"fsdp2_tp2", 1, 2, 2},
        Layout{"pp2_fsdp2_interleaved", 1, 2, 1, with_schedule("Interleaved1F1B"), 1, 2}}) {
    SCOPED_TRACE(layout.name);
    test::expect_close(rounded(layout), one, 2e-3);
  }
}

TEST(MuonRun, ACheckpointGoesOnInAnotherLayout) {
  const Layout fsdp_tp{"fsdp2_tp2", 1, 2, 2}, hsdp{"hsdp2x2", 2, 2, 1}, one{"one", 1, 1, 1};
  for (const auto& [from, to] : {std::pair{fsdp_tp, one}, {one, hsdp}, {hsdp, fsdp_tp}}) {
    test::expect_to_go_on(from, to, one_rank_run(), make_model);
  }
}

TEST(MuonRun, TheMemoryPlanKnowsItsStateAndBuffers) {
  JobConfig config;
  config.model.flavor = "8B";
  config.training.seq_len = 64;
  config.training.local_batch_size = 1;
  const MemoryPlan adam = plan_model(config).memory;
  config.optimizer.name = "Muon";
  const MemoryPlan muon = plan_model(config).memory;
  constexpr int64_t kBlocks = int64_t{32} * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096);
  EXPECT_EQ(adam.optimizer - muon.optimizer, 4 * kBlocks);
  constexpr int64_t kLargest = int64_t{14336} * 4096;
  EXPECT_EQ(muon.working, kLargest * (4 * 2 + 4));  // few tokens: the update needs most
  const MemoryPlan sharded = plan_model(config, /*world_size=*/8).memory;
  EXPECT_EQ(sharded.working, kLargest * (8 * 2 + 4 * 2 + 4));
}

}  // namespace
}  // namespace titanium::train
