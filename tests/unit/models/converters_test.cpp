#include <gtest/gtest.h>

#include "tests/support/tiny_llama.h"
#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/models/deepseek_v3/model.h"
#include "titanium/models/llama3/model.h"
#include "titanium/models/model_converters.h"

namespace titanium::models {
namespace {

config::Float8Linear with_filters(const config::Names& filters, const char* recipe = nullptr) {
  config::Float8Linear options;
  options.filter_fqns = filters;
  if (recipe != nullptr) options.recipe_name = recipe;
  return options;
}

JobConfig float8_config(const config::Names& filters = {}) {
  JobConfig config;
  config.model.converters = {"quantize.linear.float8"};
  config.quantize.linear.float8 = with_filters(filters);
  return config;
}

// Names of the layers that are converted.
std::vector<std::string> converted(const JobConfig& config, const llama3::Args& args) {
  llama3::Llama3 model(args);
  apply_converters(model, config, parallel::ParallelDims{});
  std::vector<std::string> names;
  for (const Parameter* parameter : model.parameters()) {
    if (parameter->float8) names.push_back(parameter->fqn);
  }
  return names;
}

TEST(Converters, BothSizesOfAFloat8LayerAreMultiplesOf16) {
  EXPECT_TRUE(is_float8_layer("a", 16, 48, {}));
  EXPECT_FALSE(is_float8_layer("a", 24, 48, {}));
  EXPECT_FALSE(is_float8_layer("a", 16, 40, {}));
}

TEST(Converters, AFilterIsAPartOfALayersName) {
  EXPECT_FALSE(is_float8_layer("layers.0.attention.wq", 64, 64, with_filters({"output", "wq"})));
  EXPECT_FALSE(is_float8_layer("layers.0.attention.wq", 64, 64, with_filters({"layers.0."})));
  EXPECT_TRUE(is_float8_layer("layers.10.attention.wq", 64, 64, with_filters({"layers.0."})));
  EXPECT_TRUE(is_float8_layer("layers.0.attention.wq", 64, 64, with_filters({"weight"})));
}

TEST(Converters, LayersThatAreTooSmallCanBeLeftOut) {
  struct Case {
    int64_t in, out;
    bool tensorwise, rowwise;
  };
  for (const auto& [in, out, tensorwise, rowwise] :
       {Case{4096, 1024, false, false}, Case{4096, 1040, true, false}, Case{4112, 1024, true, false},
        Case{4096, 2048, true, false}, Case{4096, 2064, true, true}, Case{1024, 8192, true, false},
        Case{1040, 8192, true, true}, Case{2048, 4096, true, false}, Case{2064, 4096, true, true}}) {
    EXPECT_EQ(is_float8_layer("a", in, out, with_filters({"auto_filter_small_kn"})), tensorwise) << in << " " << out;
    EXPECT_EQ(is_float8_layer("a", in, out, with_filters({"auto_filter_small_kn"}, "rowwise")), rowwise)
        << in << " " << out;
  }
  EXPECT_FALSE(is_float8_layer("output", 8192, 8192, with_filters({"auto_filter_small_kn", "output"})));
}

TEST(Converters, LinearLayersAreConvertedAndNothingElse) {
  const llama3::Args args = test::tiny_llama(32);
  const size_t per_block = 7;
  EXPECT_EQ(converted(float8_config(), args).size(), args.n_layers * per_block + 1);
  const std::vector<std::string> names =
      converted(float8_config({"output", "layers.0", "layers.1", "attention"}), args);
  EXPECT_EQ(names, (std::vector<std::string>{"layers.2.feed_forward.w1.weight", "layers.2.feed_forward.w2.weight",
                                             "layers.2.feed_forward.w3.weight"}));
  EXPECT_TRUE(converted({}, args).empty());
}

TEST(Converters, AHeadThatSharesTheEmbeddingIsNotConverted) {
  llama3::Args args = test::tiny_llama(32);
  args.tied_embeddings = true;
  for (const std::string& name : converted(float8_config(), args)) EXPECT_TRUE(name.starts_with("layers.")) << name;
}

TEST(Converters, WeightsTravelAsFloat8OnlyBetweenShards) {
  JobConfig config = float8_config();
  config.quantize.linear.float8.enable_fsdp_float8_all_gather = true;
  for (const int64_t shards : {1, 2}) {
    llama3::Llama3 model(test::tiny_llama(32));
    config.parallelism.data_parallel_shard_degree = shards;
    apply_converters(model, config, parallel::parallel_dims(config.parallelism, shards));
    for (const Parameter* parameter : model.parameters()) {
      if (!parameter->float8) continue;
      EXPECT_EQ(parameter->float8->is_gathered, shards > 1) << parameter->fqn;
    }
  }
}

std::string refusal(const std::function<void()>& check) {
  try {
    check();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Converters, TheCpuIsRefusedWithTheRemedy) {
  JobConfig config = float8_config();
  EXPECT_EQ(refusal([&] { check_converters(config, at::kCPU); }),
            "model.converters has quantize.linear.float8, but the CPU does not compute in float8. Set "
            "quantize.linear.float8.emulate = true to round to float8 and multiply in float32, or run on a GPU.");
  config.quantize.linear.float8.emulate = true;
  EXPECT_NO_THROW(check_converters(config, at::kCPU));
  config.quantize.linear.float8.emulate = false;
  config.checkpoint.create_seed_checkpoint = true;  // computes nothing
  EXPECT_NO_THROW(check_converters(config, at::kCPU));
}

JobConfig experts_config(const char* converter, bool emulate) {
  JobConfig config;
  config.model.converters = {converter};
  config.quantize.grouped_mm.float8 = {.fqns = {"experts"}, .emulate = emulate};
  config.quantize.grouped_mm.mx = {.fqns = {"experts"}, .emulate = emulate};
  return config;
}

TEST(Converters, ExpertsAreRefusedWithTheRemedyWhereTheDeviceLacksTheirProducts) {
  const GpuDeviceProperties ada{.name = "NVIDIA L40S", .compute_capability = 89},
      hopper{.name = "NVIDIA H200", .compute_capability = 90};
  const JobConfig float8 = experts_config("quantize.grouped_mm.float8", false),
                  mx = experts_config("quantize.grouped_mm.mx", false);
  using Device = std::pair<const GpuDeviceProperties*, std::string>;
  for (const auto& [gpu, name] : {Device{nullptr, "the CPU"}, Device{&ada, "NVIDIA L40S"}}) {
    EXPECT_EQ(refusal([&, gpu = gpu] { check_converters(float8, gpu); }),
              "model.converters has quantize.grouped_mm.float8, but " + name +
                  " has no grouped products of float8 (a GPU of compute capability 9.0 or more is needed). Set "
                  "quantize.grouped_mm.float8.emulate = true to round to float8 and multiply in float32.");
  }
  EXPECT_NO_THROW(check_converters(float8, &hopper));
  EXPECT_EQ(refusal([&] { check_converters(mx, &hopper); }),
            "model.converters has quantize.grouped_mm.mx, but NVIDIA H200 has no products of MXFP8 that this program "
            "can use. Set quantize.grouped_mm.mx.emulate = true to round to MXFP8 and multiply in float32.");
  EXPECT_NO_THROW(check_converters(experts_config("quantize.grouped_mm.mx", true), nullptr));
  EXPECT_NO_THROW(check_converters(experts_config("quantize.grouped_mm.float8", true), nullptr));
}

TEST(Converters, StackedWeightsOfExpertsAreConvertedIfTheyAreWhole) {
  deepseek_v3::Args args = deepseek_v3::flavors().at("debugmodel");
  const JobConfig config = experts_config("quantize.grouped_mm.float8", true);
  deepseek_v3::DeepseekV3 model(args);
  apply_converters(model, config, {});
  int converted = 0;
  for (const Parameter* parameter : model.parameters()) {
    const bool is_stacked = parameter->fqn.find(".moe.experts.") != std::string::npos;
    EXPECT_EQ(parameter->float8 != nullptr, is_stacked) << parameter->fqn;
    converted += parameter->float8 != nullptr;
  }
  EXPECT_EQ(converted, 3 * (args.n_layers - args.n_dense_layers));
  EXPECT_EQ(refusal([&] { apply_converters(model, config, {.tp = 2}); }),
            "model.converters has quantize.grouped_mm.float8, which quantises whole experts, but "
            "parallelism.tensor_parallel_degree = 2 cuts them. Use parallelism.expert_parallel_degree > 1 and "
            "expert_tensor_parallel_degree = 1, or leave the converter out.");
}

TEST(Converters, RowsOfExpertsAreKeptUnlessAllTheirProductsAreInFloat8OnTensorCores) {
  const auto keeps_rows = [](const char* part, bool emulate, Dtype compute) {
    JobConfig config = experts_config("quantize.grouped_mm.float8", emulate);
    config.quantize.grouped_mm.float8.fqns = {part};
    deepseek_v3::DeepseekV3 model(deepseek_v3::flavors().at("debugmodel"));
    apply_converters(model, config, {});
    const nn::SaveLevels levels = model.block(model.block_count() - 1)->levels(compute);
    EXPECT_EQ(levels.at(1).name, "products");
    return levels.at(0).kept_row_bytes > levels.at(1).kept_row_bytes;
  };
  EXPECT_FALSE(keeps_rows("experts", false, at::kBFloat16));
  EXPECT_TRUE(keeps_rows("experts", true, at::kBFloat16));
  EXPECT_TRUE(keeps_rows("experts", false, at::kFloat));
  EXPECT_TRUE(keeps_rows("experts.w1", false, at::kBFloat16));  // w3 takes rows in bf16
}

TEST(Converters, AGpuWithoutFloat8IsRefusedWithTheRemedy) {
  const GpuDeviceProperties old{.name = "NVIDIA A100-SXM4-80GB", .compute_capability = 80};
  EXPECT_EQ(refusal([&] { check_float8_device(&old); }),
            "model.converters has quantize.linear.float8, but NVIDIA A100-SXM4-80GB does not compute in float8 "
            "(compute capability 8.0; 8.9 or more is needed). Set quantize.linear.float8.emulate = true to round to "
            "float8 and multiply in float32.");
}

TEST(Converters, WhatTheyDidIsLogged) {
  log_to_stdout(LogLevel::kInfo);
  const auto expect_logged = [](const JobConfig& config, const std::vector<const char*>& lines) {
    testing::internal::CaptureStdout();
    converted(config, test::tiny_llama(32));
    const std::string log = testing::internal::GetCapturedStdout();
    for (const char* line : lines) EXPECT_NE(log.find(line), std::string::npos) << line << " is not in\n" << log;
    EXPECT_EQ(std::ranges::count(log, '\n'), std::ssize(lines)) << log;
  };
  JobConfig config = float8_config({"output"});
  config::Float8Linear& options = config.quantize.linear.float8;
  options.emulate = true;
  expect_logged(config, {"INFO - Float8 tensorwise scaled training active\n",
                         "INFO - Swapped to Float8Linear layers with enable_fsdp_float8_all_gather=False (21 of 22 "
                         "linear layers, emulated)\n"});
  options.recipe_name = "rowwise";
  options.filter_fqns = {"auto_filter_small_kn"};
  options.precompute_float8_dynamic_scale_for_fsdp = true;
  expect_logged(config, {"INFO - Float8 training active with recipe rowwise\n", "INFO - auto_filter_small_kn leaves",
                         "WARNING - quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp has no effect",
                         "(0 of 22 linear layers, emulated)\n",
                         "WARNING - quantize.linear.float8 changes nothing: each of the 22 linear layers is left out"});
  log_to_stdout(LogLevel::kError);
}

}  // namespace
}  // namespace titanium::models
