// Every kind of attention on layouts: latents on rows, heads over ranks, biases that are added once, sinks per head,
// windows and chunks over a shared sequence.
#include "tests/support/compare_runs.h"
#include "tests/support/mixed_attention.h"
#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"

namespace titanium::train {
namespace {

using test::Layout;
using test::Outcome;

struct Case {
  bool inside_documents = false;
  std::string positions = "sequence";
  auto operator<=>(const Case&) const = default;
};

void PrintTo(const Case& tested, std::ostream* out) {
  *out << (tested.inside_documents ? "inside documents" : "causal") << ", positions of a " << tested.positions;
}

// Several documents in each sample.
std::filesystem::path short_texts() {
  std::string records;
  for (int i = 0; i < 200; ++i) {
    records += fmt::format("{{\"text\": \"A text of its own, number {}{}\"}}\n", i * i * i, std::string(i % 40, 'x'));
  }
  const std::filesystem::path file = test::test_folder() / "short.jsonl";
  write_file_atomically(file, records);
  return file;
}

Outcome train(const Layout& layout, const Case& tested) {
  JobConfig config = test::configure(layout);
  config.training.steps = 3;
  config.training.positions = tested.positions;
  if (tested.positions == "document") config.training.dataset_path = short_texts().string();
  return test::train(config, layout.ranks(),
                     [&] { return test::make_mixed_model(config.training.seq_len, tested.inside_documents); });
}

const Outcome& one_rank_run(const Case& tested) {
  static std::map<Case, Outcome> runs;
  if (!runs.contains(tested)) runs[tested] = train({"one", 1, 1, 1}, tested);
  return runs.at(tested);
}

class AttentionLayouts : public testing::TestWithParam<Layout> {};

TEST_P(AttentionLayouts, TrainAsOneRankDoes) {
  for (const bool inside_documents : {false, true}) {
    for (const char* positions : {"sequence", "document"}) {
      const Case tested{inside_documents, positions};
      SCOPED_TRACE(testing::PrintToString(tested));
      test::expect_same_run(train(GetParam(), tested), one_rank_run(tested), 1e-5);
    }
  }
}

// What the runs above would not notice if positions did not start again: gradients of queries.
TEST(AttentionPositions, ThatStartAgainWithEachDocumentChangeGradients) {
  for (const bool inside_documents : {false, true}) {
    const Outcome& started_again = one_rank_run({inside_documents, "document"});
    JobConfig config = test::configure({"one", 1, 1, 1});
    config.training.steps = 3;
    config.training.dataset_path = short_texts().string();
    const Outcome other =
        test::train(config, 1, [&] { return test::make_mixed_model(config.training.seq_len, inside_documents); });
    const auto difference = [&](int layer, const char* weight) {
      const std::string name = fmt::format("layers.{}.attention.{}.weight.exp_avg", layer, weight);
      return test::relative_error(other.final.at(name), started_again.final.at(name));
    };
    // Inside documents rope tells the same differences of positions; queries still grow with them.
    EXPECT_GT(difference(4, "wq"), 1e-3);
    if (inside_documents) continue;
    for (const auto& [layer, weight] : {std::pair{0, "wq_b"}, {1, "wq"}, {2, "wq"}, {3, "wq"}}) {
      EXPECT_GT(difference(layer, weight), 1e-3) << layer;
    }
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
