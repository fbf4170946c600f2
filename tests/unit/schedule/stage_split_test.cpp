#include "titanium/schedule/stage_split.h"

#include "tests/unit/schedule/shapes.h"

namespace titanium::schedule {
namespace {

ModelChildren children(int64_t layers) {
  ModelChildren children{.before = {"tok_embeddings"}, .blocks = {}, .after = {"norm", "output"}};
  for (int64_t i = 0; i < layers; ++i) children.blocks.push_back(fmt::format("layers.{}", i));
  return children;
}

StageModules split(const char* schedule, const SplitRequest& request) {
  return split_model(find_schedule(schedule), request);
}

std::string refused(const char* schedule, const SplitRequest& request) {
  return refusal([&] { split(schedule, request); });
}

TEST(StageSplit, LayersAreDealtWithTheEndsCounted) {
  EXPECT_EQ(split("1F1B", {.ranks = 2, .children = children(6)}),
            (StageModules{{"tok_embeddings", "layers.0", "layers.1", "layers.2"},
                          {"layers.3", "layers.4", "layers.5", "norm", "output"}}));
  EXPECT_EQ(split("GPipe", {.ranks = 3, .children = children(3), .input_weight = 1, .output_weight = 1}),
            (StageModules{{"tok_embeddings", "layers.0"}, {"layers.1", "layers.2"}, {"norm", "output"}}));
  EXPECT_EQ(split("GPipe", {.ranks = 1, .children = children(1)}),
            (StageModules{{"tok_embeddings", "layers.0", "norm", "output"}}));
}

TEST(StageSplit, EveryModuleIsInOneStageInOrder) {
  for (int64_t layers = 1; layers < 40; ++layers) {
    for (int64_t stages = 1; stages <= layers; ++stages) {
      std::vector<std::string> all;
      for (const auto& stage : split_evenly(stages, children(layers), 1, 1)) {
        EXPECT_FALSE(stage.empty());
        all.insert(all.end(), stage.begin(), stage.end());
      }
      ASSERT_EQ(all.size(), static_cast<size_t>(layers + 3));
      EXPECT_EQ(all.front(), "tok_embeddings");
      EXPECT_EQ(all[layers], fmt::format("layers.{}", layers - 1));
      EXPECT_EQ(all.back(), "output");
    }
  }
}

TEST(StageSplit, TheScheduleSaysHowManyStages) {
  const auto count = [](const char* schedule, std::optional<int64_t> per_stage) {
    return count_stages(find_schedule(schedule), {.ranks = 4, .children = children(30), .layers_per_stage = per_stage});
  };
  EXPECT_EQ(count("1F1B", {}), 4);
  EXPECT_EQ(count("Interleaved1F1B", {}), 8);
  EXPECT_EQ(count("ZBVZeroBubble", {}), 8);
  EXPECT_EQ(count("PipelineScheduleMulti", {}), 8);
  EXPECT_EQ(count("1F1B", 8), 4);
  EXPECT_EQ(count("Interleaved1F1B", 2), 16);
  EXPECT_EQ(count("LoopedBFS", 4), 8);
}

TEST(StageSplit, LayersPerStageThatDoNotFitAreRefused) {
  const auto with = [](int64_t size) {
    return SplitRequest{.ranks = 4, .children = children(30), .layers_per_stage = size};
  };
  const std::string origin =
      "parallelism.pipeline_parallel_layers_per_stage = {} makes of 30 layers, counting the embedding as 1 and the "
      "output as 1, {} stages";
  EXPECT_EQ(refused("1F1B", with(5)), fmt::format(fmt::runtime(origin), 5, 7) +
                                          ", which 4 pipeline ranks cannot share equally. Use a multiple of 4.");
  EXPECT_EQ(refused("1F1B", with(4)), fmt::format(fmt::runtime(origin), 4, 8) +
                                          " on 4 pipeline ranks. 1F1B wants exactly 1 stage per rank, not 2.");
  EXPECT_EQ(refused("LoopedBFS", with(8)),
            fmt::format(fmt::runtime(origin), 8, 4) +
                " on 4 pipeline ranks. LoopedBFS wants at least 2 stages per rank, not 1.");
  EXPECT_EQ(refused("DualPipeV", with(2)),
            fmt::format(fmt::runtime(origin), 2, 16) +
                " on 4 pipeline ranks. DualPipeV wants exactly 2 stages per rank, not 4.");
  EXPECT_EQ(refused("1F1B", with(0)), "parallelism.pipeline_parallel_layers_per_stage = 0 must be at least 1.");
}

TEST(StageSplit, TooManyStagesAndTooHeavyEndsAreRefused) {
  EXPECT_EQ(refused("1F1B", {.ranks = 8, .children = children(4)}),
            "8 pipeline stages are too many for 4 layers (counting the embedding as 1 and the output as 1). Use fewer "
            "pipeline ranks, or more layers per stage.");
  EXPECT_EQ(refused("1F1B", {.ranks = 4, .children = children(6), .input_weight = 3}),
            "parallelism.pipeline_parallel_first_stage_less_layers = 3 is more than the 2 layers of a stage (4 stages, "
            "6 layers). Use a smaller value.");
  EXPECT_EQ(refused("1F1B", {.ranks = 4, .children = children(6), .output_weight = 3}),
            "parallelism.pipeline_parallel_last_stage_less_layers = 3 is more than the 2 layers of a stage (4 stages, "
            "6 layers). Use a smaller value.");
  EXPECT_EQ(refusal([] { split_evenly(0, children(4), 1, 1); }),
            "A pipeline of 0 stages is none: there must be at least 1.");
}

TEST(StageSplit, ModulesByHandAreTakenAsTheyAreIfWhole) {
  const StageModules modules = {{"layers.0", "tok_embeddings"}, {"layers.1"}, {"layers.2", "norm"}, {"output"}};
  const StageModules sorted = {{"tok_embeddings", "layers.0"}, {"layers.1"}, {"layers.2", "norm"}, {"output"}};
  EXPECT_EQ(split("1F1B", {.ranks = 4, .children = children(3), .modules = modules}), sorted);
  EXPECT_EQ(split("ZBVZeroBubble", {.ranks = 2, .children = children(3), .modules = modules}), sorted);
}

TEST(StageSplit, ModulesByHandMustBeWholeAndInOrder) {
  const auto with = [](StageModules modules) {
    return refused("1F1B", {.ranks = 2, .children = children(2), .modules = std::move(modules)});
  };
  const std::string option = "parallelism.module_fqns_per_model_part";
  EXPECT_EQ(with({{"tok_embeddings"}, {"layers.0", "layers.1", "norm", "output"}}), "");
  EXPECT_EQ(with({{"tok_embeddings", "layers.0"}, {"layers.1", "norm"}}), option + ": 'output' is in no stage.");
  EXPECT_EQ(with({{"tok_embeddings", "layers.0"}, {"layers.0", "layers.1", "norm", "output"}}),
            option + ": 'layers.0' is there twice, or in a stage after its place.");
  EXPECT_EQ(with({{"tok_embeddings", "layers.1"}, {"layers.0", "norm", "output"}}),
            option + ": stage 0 has 'layers.1', but 'layers.0' must come before.");
  EXPECT_EQ(with({{"tok_embedings"}, {"layers.0", "layers.1", "norm", "output"}}),
            option + ": stage 0 has 'tok_embedings', which the model does not have. Did you mean 'tok_embeddings'?");
  EXPECT_EQ(with({{"tok_embeddings", "layers.0", "layers.1", "norm", "output"}, {}}),
            option + ": stage 1 has no module. Leave it out.");
  EXPECT_EQ(with({{"tok_embeddings", "layers.0", "layers.1", "norm", "output"}}),
            option + " has 1 stages, which 2 pipeline ranks cannot share equally. Use a multiple of 2.");
  EXPECT_EQ(with({{"tok_embeddings"}, {"layers.0"}, {"layers.1"}, {"norm", "output"}}),
            option + " has 4 stages on 2 pipeline ranks. 1F1B wants exactly 1 stage per rank, not 2.");
}

TEST(StageSplit, MicroBatchesDivideTheBatch) {
  EXPECT_EQ(count_micro_batches(8, 2), 4);
  EXPECT_EQ(refusal([] { count_micro_batches(8, 3); }),
            "parallelism.pipeline_parallel_microbatch_size = 3 must divide training.local_batch_size = 8.");
}

TEST(StageSplit, TooFewMicroBatchesAreAWarning) {
  EXPECT_EQ(warn_of_few_micro_batches(8, 8), std::nullopt);
  EXPECT_EQ(warn_of_few_micro_batches(4, 8),
            "4 micro-batches cannot fill a pipeline of 8 stages: ranks will wait. Raise training.local_batch_size or "
            "lower parallelism.pipeline_parallel_microbatch_size.");
}

}  // namespace
}  // namespace titanium::schedule
