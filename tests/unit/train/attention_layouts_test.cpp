// Every kind of attention on layouts: latents on rows, heads over ranks, biases that are added once, sinks per head,
// windows and chunks over a shared sequence.
#include "tests/support/compare_runs.h"
#include "tests/support/mixed_attention.h"

namespace titanium::train {
namespace {

using test::Layout;
using test::Outcome;

Outcome train(const Layout& layout, bool documents) {
  JobConfig config = test::configure(layout);
  config.training.steps = 3;
  return test::train(config, layout.ranks(),
                     [&] { return test::make_mixed_model(config.training.seq_len, documents); });
}

const Outcome& one_rank_run(bool documents) {
  static const Outcome plain = train({"one", 1, 1, 1}, false), inside = train({"one", 1, 1, 1}, true);
  return documents ? inside : plain;
}

class AttentionLayouts : public testing::TestWithParam<Layout> {};

TEST_P(AttentionLayouts, TrainAsOneRankDoes) {
  for (const bool documents : {false, true}) {
    SCOPED_TRACE(documents);
    test::expect_same_run(train(GetParam(), documents), one_rank_run(documents), 1e-5);
  }
}

void with_pipeline(JobConfig& config) {
  config.parallelism.pipeline_parallel_schedule = "1F1B";
  config.parallelism.pipeline_parallel_microbatch_size = 2;
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionLayouts,
    testing::Values(Layout{"tp2", 1, 1, 2}, Layout{"fsdp2_tp2", 1, 2, 2},
                    Layout{"full", 1, 1, 1, [](JobConfig& c) { c.activation_checkpoint.mode = "full"; }},
                    Layout{"cp2", 1, 1, 1, [](JobConfig&) {}, 2},
                    Layout{"cp4_ring", 1, 1, 1,
                           [](JobConfig& c) { c.parallelism.context_parallel_rotate_method = "alltoall"; }, 4},
                    Layout{"tp2_cp2", 1, 1, 2, [](JobConfig&) {}, 2}, Layout{"pp2", 1, 1, 1, with_pipeline, 1, 2}),
    [](const testing::TestParamInfo<Layout>& info) { return info.param.name; });

}  // namespace
}  // namespace titanium::train
