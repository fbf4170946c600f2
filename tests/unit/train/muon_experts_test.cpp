// Muon with experts, which are stacks of matrices with placements of their own.
#include "tests/support/muon_runs.h"
#include "tests/support/tiny_moe.h"

namespace titanium::train {
namespace {

using test::Layout;
using test::muon_config;
using test::Tensors;

test::Trained train_until(const JobConfig& config, const Layout& layout, int64_t until,
                          const test::TinyMoeArgs& args = test::tiny_moe()) {
  return test::train_until(config, layout, until, test::tiny_moe_maker(args));
}

// What changes a configuration to experts on `expert` ranks, each cut over `expert_tensor`, under a schedule.
std::function<void(JobConfig&)> experts(int64_t expert, int64_t expert_tensor = 1, const char* schedule = nullptr,
                                        int64_t micro_batch = 2) {
  return [=](JobConfig& config) {
    config.parallelism.expert_parallel_degree = expert;
    config.parallelism.expert_tensor_parallel_degree = expert_tensor;
    if (schedule == nullptr) return;
    config.parallelism.pipeline_parallel_schedule = schedule;
    config.parallelism.pipeline_parallel_microbatch_size = micro_batch;
  };
}

const Layout kOne{"one", 1, 1, 1};

const Tensors& one_rank_run() {
  static const Tensors end = train_until(muon_config(kOne), kOne, 6).end;
  return end;
}

class MuonExpertLayouts : public testing::TestWithParam<Layout> {};

TEST_P(MuonExpertLayouts, TrainAsOneRankDoes) {
  const Layout& layout = GetParam();
  test::expect_close(train_until(muon_config(layout), layout, 6).end, one_rank_run(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All, MuonExpertLayouts,
    testing::Values(Layout{"fsdp2", 1, 2, 1}, Layout{"dp2", 2, 1, 1}, Layout{"tp2", 1, 1, 2},
                    Layout{"ep2", 1, 2, 1, experts(2)}, Layout{"fsdp2_ep2", 1, 4, 1, experts(2)},
                    Layout{"fsdp3_ep2", 1, 6, 1, experts(2)}, Layout{"fsdp6_ep2_uneven", 1, 12, 1, experts(2)},
                    Layout{"hsdp2_ep2", 2, 2, 1, experts(2)}, Layout{"hsdp2_fsdp3_ep2", 2, 6, 1, experts(2)},
                    Layout{"tp2_ep4", 1, 2, 2, experts(4)}, Layout{"tp2_ep2_etp2", 1, 2, 2, experts(2, 2)},
                    Layout{"tp4_ep2", 1, 1, 4, experts(2)}, Layout{"hsdp2_tp2_ep2_etp2", 2, 2, 2, experts(2, 2)},
                    Layout{"cp2_ep2", 1, 1, 1, experts(2), 2}, Layout{"pp2_ep2", 1, 2, 1, experts(2, 1, "1F1B"), 1, 2},
                    Layout{"pp2_ep2_zbv", 1, 2, 1, experts(2, 1, "ZBVZeroBubble", 1), 1, 2},
                    Layout{"pp2_ep2_dual_pipe_v", 1, 2, 1, experts(2, 1, "DualPipeV", 1), 1, 2}),
    [](const auto& info) { return info.param.name; });

TEST(MuonExperts, StackedWeightsAreMuons) {
  EXPECT_EQ(one_rank_run().at("layers.1.moe.experts.w1.momentum_buffer").dim(), 3);
  EXPECT_TRUE(one_rank_run().contains("layers.1.moe.router.gate.weight.momentum_buffer"));
  EXPECT_TRUE(one_rank_run().contains("layers.1.moe.shared_experts.w1.weight.momentum_buffer"));
}

// Stacked biases have the shape of a matrix.
TEST(MuonExperts, BiasesOfExpertsAreAdams) {
  test::TinyMoeArgs args = test::tiny_moe();
  args.num_shared_experts = 0;
  args.score_func = "softmax";
  args.gate_bias = args.clamped_swiglu = true;
  const Tensors one = train_until(muon_config(kOne), kOne, 6, args).end;
  EXPECT_TRUE(one.contains("layers.1.moe.experts.mlp1_weight.momentum_buffer"));
  EXPECT_TRUE(one.contains("layers.1.moe.experts.mlp1_bias.exp_avg"));
  EXPECT_TRUE(one.contains("layers.1.moe.router.gate.bias.exp_avg"));
  for (const Layout& layout : {Layout{"fsdp2_ep2", 1, 4, 1, experts(2)}, Layout{"tp2_ep2_etp2", 1, 2, 2, experts(2, 2)},
                               Layout{"tp4_ep2", 1, 1, 4, experts(2)}, Layout{"tp2", 1, 1, 2}}) {
    SCOPED_TRACE(layout.name);
    test::expect_close(train_until(muon_config(layout), layout, 6, args).end, one, 1e-5);
  }
}

// The default. What is rounded differently may send a token to another expert, so the gradients and with them the
// states of single experts may differ much more than the weights.
TEST(MuonExperts, ProductsInBfloat16GiveWeightsThatAreNear) {
  const auto rounded = [](const Layout& layout) {
    JobConfig config = muon_config(layout);
    config.optimizer.muon.ns_dtype = "bfloat16";
    return train_until(config, layout, 6).end;
  };
  const Tensors one = rounded(kOne);
  for (const Layout& layout : {Layout{"fsdp2_ep2", 1, 4, 1, experts(2)}, Layout{"hsdp2_ep2", 2, 2, 1, experts(2)},
                               Layout{"tp2_ep2_etp2", 1, 2, 2, experts(2, 2)}}) {
    SCOPED_TRACE(layout.name);
    const Tensors found = rounded(layout);
    for (const auto& [name, tensor] : one) {
      if (name.find("momentum_buffer") != std::string::npos || name.find(".exp_avg") != std::string::npos) continue;
      SCOPED_TRACE(name);
      EXPECT_CLOSE(found.at(name), tensor, 2e-3);
    }
  }
}

TEST(MuonExperts, ACheckpointGoesOnInAnotherLayout) {
  const Layout sharded{"fsdp2_ep2", 1, 4, 1, experts(2)}, cut{"tp2_ep2_etp2", 1, 2, 2, experts(2, 2)},
      copied{"hsdp2_ep2", 2, 2, 1, experts(2)}, staged{"pp2_ep2", 1, 2, 1, experts(2, 1, "DualPipeV", 1), 1, 2};
  for (const auto& [from, to] :
       {std::pair{kOne, sharded}, {sharded, cut}, {cut, copied}, {copied, staged}, {staged, kOne}}) {
    test::expect_to_go_on(from, to, one_rank_run(), test::tiny_moe_maker(test::tiny_moe()));
  }
}

}  // namespace
}  // namespace titanium::train
