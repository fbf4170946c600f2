#include "titanium/config/validate.h"

#include "tests/unit/config/config_file.h"

namespace titanium::config {
namespace {

TEST(Rules, SequenceLengthIsDivisibleByTensorTimesTwiceContext) {
  EXPECT_EQ(
      toml_error("[training]\nseq_len = 8200\n[parallelism]\ntensor_parallel_degree = 8\n"),
      "run.toml:2: training.seq_len = 8200 is not divisible by 16 (tensor parallel 8 x 2 x context parallel 1). Use "
      "8192 or 8208, or change the degrees.");
  EXPECT_EQ(
      cli_error({"--parallelism.context_parallel_degree=3", "--parallelism.tensor_parallel_degree=2"}),
      "command line: training.seq_len = 2048 is not divisible by 12 (tensor parallel 2 x 2 x context parallel 3). "
      "Use 2040 or 2052, or change the degrees.");
  EXPECT_EQ(toml_error("[training]\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 8\n"), "no error");
  EXPECT_EQ(toml_error("[training]\nseq_len = 33\n"), "no error");
}

TEST(Rules, EarlyStepsNeitherClipNorAccumulate) {
  EXPECT_EQ(cli_error({"--optimizer.early_step_in_backward"}),
            "command line: optimizer.early_step_in_backward updates before the norm of all gradients is known, so it "
            "cannot clip them to training.max_norm = 1. Set training.max_norm = -1.");
  EXPECT_EQ(cli_error({"--optimizer.early_step_in_backward", "--training.max_norm=-1"}), "no error");
  EXPECT_EQ(
      cli_error({"--optimizer.early_step_in_backward", "--training.max_norm=-1", "--training.global_batch_size=16",
                 "--training.local_batch_size=8", "--parallelism.data_parallel_shard_degree=1"}),
      "command line: optimizer.early_step_in_backward needs one micro-batch per step, and "
      "training.global_batch_size = 16 is more than the 8 samples that all ranks take at once "
      "(training.local_batch_size = 8). Make them equal.");
  const JobConfig two_ranks = [] {
    JobConfig config;
    config.optimizer.early_step_in_backward = true;
    config.training.max_norm = -1;
    config.training.local_batch_size = 8;
    config.training.global_batch_size = 16;
    return config;
  }();
  EXPECT_TRUE(validate(two_ranks, /*world_size=*/2).empty());
  EXPECT_FALSE(validate(two_ranks, /*world_size=*/1).empty());
}

TEST(Rules, StochasticRoundingNeedsBfloat16Parameters) {
  EXPECT_EQ(cli_error({"--optimizer.bf16_stochastic_rounding"}),
            "command line: optimizer.bf16_stochastic_rounding has nothing to round with training.dtype = \"float32\". "
            "Set training.dtype = \"bfloat16\", or leave the rounding out.");
  EXPECT_EQ(cli_error({"--optimizer.bf16_stochastic_rounding", "--training.dtype=bfloat16"}), "no error");
}

TEST(Rules, ValidationSequenceLengthCountsOnlyWhenValidating) {
  const std::string toml = "[validation]\nseq_len = 100\n[parallelism]\ntensor_parallel_degree = 8\n";
  EXPECT_EQ(toml_error(toml), "no error");
  EXPECT_EQ(
      toml_error(toml, {"--validation.enable"}),
      "run.toml:2: validation.seq_len = 100 is not divisible by 16 (tensor parallel 8 x 2 x context parallel 1). Use "
      "96 or 112, or change the degrees.");
}

TEST(Rules, GlobalBatchIsAMultipleOfWhatRanksTakeAtOnce) {
  EXPECT_EQ(
      toml_error("[training]\nlocal_batch_size = 4\nglobal_batch_size = 10\n"),
      "run.toml:3: training.global_batch_size = 10 is not divisible by 4 (local batch size 4 x data parallel 1). Use "
      "8 or 12, or change training.local_batch_size.");
  EXPECT_EQ(
      toml_error("[training]\nlocal_batch_size = 4\nglobal_batch_size = 12\n", {"--parallelism.data_parallel_shard_"
                                                                                "degree=2"}),
      "run.toml:3: training.global_batch_size = 12 is not divisible by 8 (local batch size 4 x data parallel 2). Use "
      "8 or 16, or change training.local_batch_size.");
}

TEST(Rules, WorldSizeDecidesTheShardDegreeAndWithItTheBatch) {
  const LoadedConfig loaded = load_config(
      Args{"--training.local_batch_size=4", "--training.global_batch_size=12", "--training.data_streams=12"});
  EXPECT_NO_THROW(check_world_size(loaded, 1));
  EXPECT_NO_THROW(check_world_size(loaded, 3));
  EXPECT_EQ(
      message_of([&] { check_world_size(loaded, 2); }),
      "command line: training.global_batch_size = 12 is not divisible by 8 (local batch size 4 x data parallel 2). "
      "Use 8 or 16, or change training.local_batch_size.");
}

TEST(Rules, DegreesMakeUpTheWorld) {
  const LoadedConfig loaded =
      load_config(Args{"--parallelism.tensor_parallel_degree=2", "--parallelism.pipeline_parallel_degree=2"});
  EXPECT_NO_THROW(check_world_size(loaded, 8));
  EXPECT_EQ(
      message_of([&] { check_world_size(loaded, 6); }),
      "the degrees ask for 4 ranks (replicate 1 x shard 1 x context 1 x tensor 2 x pipeline 2), but the run has 6. "
      "Change the number of ranks or the degrees.");
  EXPECT_EQ(
      message_of([&] { check_world_size(load_config(Args{"--parallelism.data_parallel_shard_degree=4"}), 2); }),
      "command line: the degrees ask for 4 ranks (replicate 1 x shard 4 x context 1 x tensor 1 x pipeline 1), but "
      "the run has 2. Change the number of ranks or the degrees.");
}

TEST(Rules, ExpertTensorDegreeIsOneOrTheTensorDegree) {
  const Args common = {"--parallelism.expert_parallel_degree=2", "--parallelism.tensor_parallel_degree=4"};
  const auto with = [&](const char* degree) {
    Args args = common;
    args.push_back(std::string("--parallelism.expert_tensor_parallel_degree=") + degree);
    return args;
  };
  EXPECT_EQ(cli_error(with("1")), "no error");
  EXPECT_EQ(cli_error(with("4")), "no error");
  EXPECT_EQ(
      cli_error(with("2")),
      "command line: parallelism.expert_tensor_parallel_degree = 2 must be 1 or the tensor-parallel degree, 4, with "
      "expert parallelism.");
  EXPECT_EQ(cli_error({"--parallelism.expert_tensor_parallel_degree=2"}), "no error");
}

TEST(Rules, ExpertDegreeDividesTheRanksThatShareParameters) {
  EXPECT_EQ(cli_error({"--parallelism.expert_parallel_degree=3", "--parallelism.data_parallel_shard_degree=4"}),
            "command line: parallelism.expert_parallel_degree = 3 must divide 4 (shard 4 x context 1 x tensor 1).");
  EXPECT_EQ(cli_error({"--parallelism.expert_parallel_degree=8", "--parallelism.data_parallel_shard_degree=4",
                       "--parallelism.tensor_parallel_degree=2"}),
            "no error");
}

TEST(Rules, MicroBatchDividesTheLocalBatchOfAPipeline) {
  EXPECT_EQ(cli_error({"--parallelism.pipeline_parallel_microbatch_size=3"}), "no error");
  EXPECT_EQ(
      cli_error({"--parallelism.pipeline_parallel_microbatch_size=3", "--parallelism.pipeline_parallel_degree=2"}),
      "command line: parallelism.pipeline_parallel_microbatch_size = 3 must divide training.local_batch_size = 8.");
}

TEST(Rules, KeepingOneCheckpointIsRefused) {
  EXPECT_EQ(cli_error({"--checkpoint.keep_latest_k=1"}),
            "command line: checkpoint.keep_latest_k = 1 would remove the only whole checkpoint while the next one is "
            "written. Use 2 or more, or 0 to keep all.");
  EXPECT_EQ(cli_error({"--checkpoint.keep_latest_k=0"}), "no error");
  EXPECT_EQ(cli_error({"--checkpoint.keep_latest_k=2"}), "no error");
}

TEST(Rules, HuggingFaceLayoutHoldsOnlyAModel) {
  EXPECT_EQ(cli_error({"--checkpoint.last_save_in_hf", "--checkpoint.no_last_save_model_only"}),
            "command line: checkpoint.last_save_in_hf needs checkpoint.last_save_model_only = true: the Hugging Face "
            "layout holds only a model.");
  EXPECT_EQ(cli_error({"--checkpoint.initial_load_in_hf", "--checkpoint.no_initial_load_model_only"}),
            "command line: checkpoint.initial_load_in_hf needs checkpoint.initial_load_model_only = true: the Hugging "
            "Face layout holds only a model.");
  EXPECT_EQ(cli_error({"--checkpoint.initial_load_in_hf_quantized"}),
            "command line: checkpoint.initial_load_in_hf_quantized needs checkpoint.initial_load_in_hf = true.");
}

TEST(Rules, SeedCheckpointNeedsCheckpoints) {
  EXPECT_EQ(cli_error({"--checkpoint.exclude_from_loading=optimizer,optimiser"}),
            "command line: checkpoint.exclude_from_loading names \"optimiser\", which no checkpoint has. Known: model, "
            "optimizer, lr_scheduler, dataloader, train_state.");
  EXPECT_EQ(
      cli_error({"--checkpoint.enable", "--comm.mode=fake_backend"}),
      "command line: checkpoint.enable = true needs ranks that exist, and those of comm.mode = \"fake_backend\" do "
      "not. Switch one of them off.");
  EXPECT_EQ(cli_error({"--checkpoint.create_seed_checkpoint"}),
            "command line: checkpoint.create_seed_checkpoint needs checkpoint.enable = true.");
}

TEST(Rules, SelectiveOptionIsOpOrANumber) {
  for (const char* good : {"op", "0", "1", "12"}) {
    EXPECT_EQ(cli_error({"--activation_checkpoint.selective_ac_option", good}), "no error") << good;
  }
  EXPECT_EQ(
      cli_error({"--activation_checkpoint.selective_ac_option=-1"}),
      "command line: activation_checkpoint.selective_ac_option = \"-1\" must be \"op\" or a number such as \"2\".");
}

TEST(Rules, Float8RecipeAndFloat8GatherExcludeEachOther) {
  EXPECT_EQ(cli_error({"--quantize.linear.float8.recipe_name=rowwise",
                       "--quantize.linear.float8.enable_fsdp_float8_all_gather"}),
            "command line: quantize.linear.float8.enable_fsdp_float8_all_gather does not go together with "
            "quantize.linear.float8.recipe_name = \"rowwise\". Leave out one of the two.");
}

TEST(Rules, Float8SizesAreNotKnownForTheRecipeWithHighPrecision) {
  EXPECT_EQ(cli_error({"--quantize.linear.float8.recipe_name=rowwise_with_gw_hp",
                       "--quantize.linear.float8.filter_fqns=output,auto_filter_small_kn"}),
            "command line: quantize.linear.float8.filter_fqns: auto_filter_small_kn knows no sizes for recipe_name = "
            "\"rowwise_with_gw_hp\". Name the layers to leave alone, or use another recipe.");
  EXPECT_EQ(cli_error({"--quantize.linear.float8.recipe_name=rowwise",
                       "--quantize.linear.float8.filter_fqns=auto_filter_small_kn"}),
            "no error");
}

TEST(Rules, ConvertersAreOfOneKind) {
  EXPECT_EQ(
      cli_error({"--model.converters=quantize.linear.float8,quantize.grouped_mm.mx"}),
      "command line: model.converters = [\"quantize.linear.float8\", \"quantize.grouped_mm.mx\"] mixes float8 and "
      "mx. Use converters of one kind.");
  EXPECT_EQ(cli_error({"--model.converters=quantize.linear.mx,quantize.grouped_mm.mx"}), "no error");
}

TEST(Rules, ProfilerCycleHoldsItsPhases) {
  EXPECT_EQ(cli_error({"--profiling.profile_freq=3"}), "no error");
  EXPECT_EQ(
      cli_error({"--profiling.profile_freq=3", "--profiling.enable_profiling"}),
      "command line: profiling.profile_freq = 3 is less than profiling.profiler_active + profiling.profiler_warmup "
      "= 4. Use 4 or more.");
}

TEST(Rules, StreamsAreSharedEvenly) {
  EXPECT_EQ(
      cli_error({"--parallelism.data_parallel_shard_degree=3"}),
      "command line: training.data_streams = 256 cannot be shared evenly by 3 data-parallel ranks. Use 255 or 258.");
  EXPECT_EQ(cli_error({"--parallelism.data_parallel_shard_degree=3", "--training.data_streams=258"}), "no error");
  EXPECT_EQ(cli_error({"--parallelism.data_parallel_replicate_degree=32", "--validation.enable"}),
            "command line: validation.data_streams = 16 cannot be shared evenly by 32 data-parallel ranks. Use 32.");
}

TEST(Rules, HugeDegreesDoNotOverflow) {
  const char* huge = "9223372036854775807";
  const std::string message =
      cli_error({std::string("--parallelism.tensor_parallel_degree=") + huge,
                 std::string("--parallelism.context_parallel_degree=") + huge,
                 std::string("--training.local_batch_size=1073741824"), "--training.global_batch_size=12"});
  EXPECT_NE(message.find("training.seq_len = 2048 is not divisible"), std::string::npos);
  EXPECT_NE(message.find("training.global_batch_size = 12 is not divisible"), std::string::npos);
}

}  // namespace
}  // namespace titanium::config
