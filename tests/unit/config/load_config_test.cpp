#include "titanium/config/reading/load_config.h"

#include "tests/support/source_folder.h"
#include "tests/unit/config/config_file.h"
#include "titanium/config/dump.h"

namespace titanium::config {
namespace {

TEST(LoadConfig, CommandLineBeatsFileBeatsDefault) {
  const LoadedConfig loaded = load("[training]\nsteps = 20\nseq_len = 512\n", {"--training.steps", "30"});
  EXPECT_EQ(loaded.config.training.steps, 30);
  EXPECT_EQ(loaded.config.training.seq_len, 512);
  EXPECT_EQ(loaded.config.training.local_batch_size, 8);
}

TEST(LoadConfig, EveryValueKnowsItsSource) {
  const std::string path = write_config("[training]\nsteps = 20\n\nseq_len = 512\n");
  const LoadedConfig loaded = load_config(Args{"--job.config_file", path, "--training.steps=30"});
  EXPECT_EQ(loaded.source("training.steps"), "command line");
  EXPECT_EQ(loaded.source("training.seq_len"), path + ":4");
  EXPECT_EQ(loaded.source("training.max_norm"), "default");
}

TEST(LoadConfig, NoFileAndEmptyFileGiveTheDefaults) {
  EXPECT_EQ(to_json(load_config(Args{})), to_json(LoadedConfig{}));
  EXPECT_EQ(load("").config.training.steps, 10000);
}

TEST(LoadConfig, ConfigFileIsFoundInEverySpelling) {
  const std::string path = write_config("[training]\nsteps = 7\n");
  for (const Args& args : {Args{"--job.config_file", path}, Args{"--job.config-file", path},
                           Args{"--job.config_file=" + path}, Args{"--job.config-file=" + path}}) {
    EXPECT_EQ(load_config(args).config.training.steps, 7) << args[0];
  }
}

TEST(LoadConfig, DashAndUnderscoreAreTheSameInNamesButNotInValues) {
  const LoadedConfig loaded =
      load_config(Args{"--training.local-batch-size", "3", "--job.description=a-b_c", "--lr-scheduler.warmup-steps=4"});
  EXPECT_EQ(loaded.config.training.local_batch_size, 3);
  EXPECT_EQ(loaded.config.job.description, "a-b_c");
  EXPECT_EQ(loaded.config.lr_scheduler.warmup_steps, 4);
}

TEST(LoadConfig, SwitchesAreTurnedOnAndOffByName) {
  const LoadedConfig loaded = load("[metrics]\nenable_tensorboard = true\n",
                                   {"--metrics.no_enable_tensorboard", "--debug.deterministic",
                                    "--checkpoint.no-initial-load-model-only", "--training.dataloader.pin_memory"});
  EXPECT_FALSE(loaded.config.metrics.enable_tensorboard);
  EXPECT_TRUE(loaded.config.debug.deterministic);
  EXPECT_FALSE(loaded.config.checkpoint.initial_load_model_only);
  EXPECT_TRUE(loaded.config.training.dataloader.pin_memory);
}

TEST(LoadConfig, ListsAreOneCommaSeparatedArgument) {
  const LoadedConfig loaded =
      load_config(Args{"--checkpoint.exclude_from_loading", "lr_scheduler,optimizer",
                       "--quantize.linear.float8.filter_fqns=output", "--quantize.linear.mx.filter_fqns="});
  EXPECT_EQ(loaded.config.checkpoint.exclude_from_loading, (Names{"lr_scheduler", "optimizer"}));
  EXPECT_EQ(loaded.config.quantize.linear.float8.filter_fqns, Names{"output"});
  EXPECT_EQ(loaded.config.quantize.linear.mx.filter_fqns, Names{});
}

TEST(LoadConfig, ListsOfListsComeFromTomlAndFromJsonArguments) {
  const std::vector<Names> parts = {{"tok_embeddings", "layers.0"}, {"layers.1", "norm", "output"}};
  const LoadedConfig from_toml = load(
      "[parallelism]\nmodule_fqns_per_model_part = [['tok_embeddings', 'layers.0'], ['layers.1', 'norm', 'output']]\n");
  EXPECT_EQ(from_toml.config.parallelism.module_fqns_per_model_part, parts);
  const LoadedConfig from_argument =
      load_config(Args{"--parallelism.module_fqns_per_model_part",
                       R"([["tok_embeddings", "layers.0"], ["layers.1", "norm", "output"]])"});
  EXPECT_EQ(from_argument.config.parallelism.module_fqns_per_model_part, parts);
}

TEST(LoadConfig, NoneUnsetsAnOption) {
  const std::string toml =
      "[lr_scheduler]\ndecay_ratio = 0.5\n[debug]\nseed = 3\n[parallelism]\ncontext_parallel_load_balancer = 'None'\n";
  const LoadedConfig loaded = load(toml, {"--lr_scheduler.decay_ratio", "None", "--debug.seed=None"});
  EXPECT_EQ(loaded.config.lr_scheduler.decay_ratio, std::nullopt);
  EXPECT_EQ(loaded.config.debug.seed, std::nullopt);
  EXPECT_EQ(loaded.config.parallelism.context_parallel_load_balancer, std::nullopt);
}

TEST(LoadConfig, NumbersAreReadInEverySpelling) {
  const LoadedConfig loaded =
      load("[training]\nmax_norm = 2\nsteps = 1_000\n[optimizer]\nweight_decay = 1e-1\n",
           {"--optimizer.lr", "3e-4", "--optimizer.eps=.5", "--training.global_batch_size", "-1"});
  EXPECT_EQ(loaded.config.training.max_norm, 2.0);
  EXPECT_EQ(loaded.config.training.steps, 1000);
  EXPECT_EQ(loaded.config.optimizer.weight_decay, 0.1);
  EXPECT_EQ(loaded.config.optimizer.lr, 3e-4);
  EXPECT_EQ(loaded.config.optimizer.eps, 0.5);
}

TEST(LoadConfig, LastOfRepeatedArgumentsCounts) {
  EXPECT_EQ(load_config(Args{"--training.steps=1", "--training.steps=2"}).config.training.steps, 2);
}

TEST(LoadConfig, SchedulesAreKnownInAnyCase) {
  const LoadedConfig loaded = load_config(Args{"--parallelism.pipeline_parallel_schedule", "interleaved1f1b"});
  EXPECT_EQ(loaded.config.parallelism.pipeline_parallel_schedule, "Interleaved1F1B");
}

TEST(LoadConfig, Float8IsReadAsTheLinearConverterWithAHint) {
  const LoadedConfig loaded = load("[model]\nconverters = ['float8']\nhf_assets_path = '/'\n");
  EXPECT_EQ(loaded.config.model.converters, Names{"quantize.linear.float8"});
  ASSERT_EQ(loaded.hints.size(), 1U);
  EXPECT_NE(loaded.hints[0].find(":2: model.converters: \"float8\" is read as \"quantize.linear.float8\"."),
            std::string::npos)
      << loaded.hints[0];
}

TEST(LoadConfig, DeprecatedNamesAreTakenOverWithAHint) {
  const LoadedConfig loaded =
      load("[model]\ntokenizer_path = '/'\n", {"--experimental.custom_args_module", "torchtitan.components.ft.config"});
  EXPECT_EQ(loaded.config.model.hf_assets_path, "/");
  EXPECT_EQ(loaded.config.job.custom_config_module, "torchtitan.components.ft.config");
  ASSERT_EQ(loaded.hints.size(), 2U);
  EXPECT_NE(loaded.hints[0].find(":2: model.tokenizer_path is deprecated and is read as model.hf_assets_path."),
            std::string::npos);
  EXPECT_EQ(loaded.hints[1],
            "command line: experimental.custom_args_module is deprecated and is read as job.custom_config_module.");
}

TEST(LoadConfig, MissingAssetsAreAHint) {
  const LoadedConfig loaded = load_config(Args{"--model.hf_assets_path", "/no/such/folder"});
  EXPECT_EQ(loaded.hints, Args{"command line: model.hf_assets_path = \"/no/such/folder\" does not exist."});
}

TEST(LoadConfig, OptionsWithAMeaningOnlyInPythonAreOneHintTogether) {
  const LoadedConfig loaded =
      load_config(Args{"--model.hf_assets_path=/", "--compile.enable", "--training.gc_freq=10", "--training.gc_debug",
                       "--optimizer.implementation=foreach", "--training.dataloader.persistent_workers",
                       "--training.dataloader.pin_memory", "--compile.backend=inductor"});
  EXPECT_EQ(loaded.hints, Args{"No effect, because it has a meaning only in Python: optimizer.implementation, "
                               "training.gc_freq, training.gc_debug, training.dataloader.persistent_workers, "
                               "training.dataloader.pin_memory, compile.enable."});
}

TEST(LoadConfig, ExtensionsAreSelectedByTheirPythonModule) {
  const LoadedConfig flux = load(
      "[job]\ncustom_config_module = 'torchtitan.models.flux.job_config'\n[training]\nimg_size = 512\n"
      "[encoder]\nmax_t5_encoding_len = 512\n[validation]\nsave_img_count = -1\n[inference]\nlocal_batch_size = 1\n");
  EXPECT_EQ(flux.config.training.img_size, 512);
  EXPECT_EQ(flux.config.encoder.max_t5_encoding_len, 512);
  EXPECT_EQ(flux.config.validation.save_img_count, -1);
  EXPECT_EQ(flux.config.inference.local_batch_size, 1);
  for (const char* module : {"torchtitan.components.ft.config", "torchtitan.experiments.ft.config"}) {
    const LoadedConfig tolerance = load(
        "[fault_tolerance]\nsync_steps = 10\nmodule_fqns_per_model_fragment = [['a'], ['b']]\n"
        "fragment_update_alpha = 0.5\n",
        {std::string("--job.custom_config_module=") + module});
    EXPECT_EQ(tolerance.config.fault_tolerance.sync_steps, 10);
    EXPECT_EQ(tolerance.config.fault_tolerance.module_fqns_per_model_fragment, (std::vector<Names>{{"a"}, {"b"}}));
    EXPECT_EQ(tolerance.config.fault_tolerance.fragment_update_alpha, 0.5);
  }
}

TEST(LoadConfig, ShippedConfigurationsAreValid) {
  for (const char* name : {"debug_model", "llama3_8b", "llama3_70b", "llama3_405b"}) {
    EXPECT_NO_THROW(
        load_config(Args{fmt::format("--job.config_file={}/configs/llama3/{}.toml", source_folder().string(), name)}))
        << name;
  }
}

}  // namespace
}  // namespace titanium::config
