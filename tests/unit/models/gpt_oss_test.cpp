#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/models/gpt_oss/model.h"
#include "titanium/models/registry.h"

namespace titanium::models {
namespace {

using gpt_oss::Args;

std::unique_ptr<Model> build(const std::string& flavor) {
  JobConfig config;
  config.model.name = "gpt_oss";
  config.model.flavor = flavor;
  return build_model(config, 4096);
}

TEST(GptOssSizes, ParametersAndOperationsAreThoseOfTheReference) {
  const std::map<std::string, std::pair<int64_t, int64_t>> counts = {
      // all, and those that a token meets
      {"debugmodel", {183'397'920, 147'912'224}},
      {"20b", {20'914'757'184, 4'187'440'704}},
      {"120b", {116'829'156'672, 5'711'982'912}},
  };
  EXPECT_EQ(counts.size(), find_model("gpt_oss").flavors.size());
  for (const auto& [flavor, count] : counts) {
    const Args& args = gpt_oss::flavors().at(flavor);
    const ModelSize size = build(flavor)->costs().size(4096);
    EXPECT_EQ(size.parameters, count.first) << flavor;
    const int64_t scores = args.n_layers * args.n_heads * 2 * args.head_dim * 4096;
    const auto expected = static_cast<double>(6 * (count.second - args.vocab_size * args.dim + scores));
    EXPECT_EQ(size.flops_per_token, expected) << flavor;
  }
}

TEST(GptOssStateDict, MatricesOfExpertsAreTransposed) {
  const auto model = build("debugmodel");
  const auto pieces = model->hugging_face()->pieces("layers.1.moe.experts.mlp1_weight", {8, 5760, 256});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].name, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(pieces[0].shape(), (Shape{8, 256, 5760}));
  const auto bias = model->hugging_face()->pieces("layers.1.moe.experts.mlp2_bias", {8, 256});
  EXPECT_EQ(bias[0].name, "model.layers.1.mlp.experts.down_proj_bias");
  EXPECT_EQ(bias[0].shape(), (Shape{8, 256}));
  EXPECT_EQ(model->hugging_face()->pieces("layers.1.attention.sinks", {64})[0].name, "model.layers.1.self_attn.sinks");
  EXPECT_EQ(model->hugging_face()->pieces("layers.1.attention.wo.bias", {256})[0].name,
            "model.layers.1.self_attn.o_proj.bias");
  EXPECT_TRUE(model->hugging_face()->pieces("layers.1.moe.expert_bias", {8}).empty());
}

Args read_config(const std::string& text) {
  const auto file = test::test_folder() / "config.json";
  write_file_atomically(file, text);
  return gpt_oss::args_from_config_json(file);
}

nlohmann::json published(const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json json = nlohmann::json::parse(R"({"model_type": "gpt_oss", "attention_bias": true,
      "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
      "initial_context_length": 4096, "intermediate_size": 2880, "max_position_embeddings": 131072,
      "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
      "num_local_experts": 32, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0,
      "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
      "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
      "quantization_config": {"quant_method": "mxfp4"}, "vocab_size": 201088})");
  for (int layer = 0; layer < 24; ++layer) {
    json["layer_types"].push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  json.update(changes);
  return json;
}

TEST(GptOssConfig, ThePublishedFileIsAFlavor) {
  EXPECT_EQ(to_json(read_config(published().dump()), gpt_oss::fields()),
            to_json(gpt_oss::flavors().at("20b"), gpt_oss::fields()));
}

TEST(GptOssConfig, TheLogNamesEveryRuleOfTheExperts) {
  const auto json = nlohmann::json::parse(to_json(gpt_oss::flavors().at("20b"), gpt_oss::fields()))["moe"];
  EXPECT_EQ(json["gate_bias"], true);
  EXPECT_EQ(json["swiglu_limit"], 7);
  EXPECT_FALSE(json.contains("num_expert_groups"));  // there are none
}

TEST(GptOssConfig, EveryFlavorGoesThroughConfigJson) {
  for (const auto& [flavor, args] : gpt_oss::flavors()) {
    const Args back = read_config(gpt_oss::to_config_json(args, at::kBFloat16));
    EXPECT_EQ(to_json(back, gpt_oss::fields()), to_json(args, gpt_oss::fields())) << flavor;
  }
}

TEST(GptOssConfig, YarnIsThereUnlessTheFileSaysOtherwise) {
  EXPECT_TRUE(read_config(published({{"rope_scaling", nullptr}}).dump()).yarn);
  EXPECT_FALSE(read_config(published({{"rope_scaling", {{"rope_type", "default"}}}}).dump()).yarn);
  Args plain = gpt_oss::flavors().at("20b");
  plain.yarn.reset();
  EXPECT_FALSE(read_config(gpt_oss::to_config_json(plain, at::kBFloat16)).yarn);
}

std::string refusal(const nlohmann::json& changes) {
  try {
    read_config(published(changes).dump());
  } catch (const UsageError& error) {
    const std::string sentence = error.what();
    return sentence.substr(sentence.find("config.json: ") + 13);
  }
  return "";
}

TEST(GptOssConfig, WhatNoModelHereIsHasASentence) {
  EXPECT_EQ(refusal({{"model_type", "llama"}}), "model_type is \"llama\", but should be \"gpt_oss\".");
  EXPECT_EQ(refusal({{"attention_bias", false}}), "attention_bias is false, but should be true: GPT-OSS has biases.");
  EXPECT_EQ(refusal({{"swiglu_alpha", 1.5}}), "swiglu_alpha is 1.5, but should be 1.702.");
  EXPECT_EQ(refusal({{"hidden_act", "gelu"}}), "hidden_act is \"gelu\", but should be \"silu\".");
  EXPECT_EQ(refusal({{"layer_types", {"full_attention"}}}),
            "layer_types is an array, but should be 24 times \"sliding_attention\" and \"full_attention\" by turns, as "
            "GPT-OSS has it.");
  EXPECT_EQ(refusal({{"num_local_experts", 3}}), "top_k = 4 must be between 1 and the number of experts, 3.");
}

}  // namespace
}  // namespace titanium::models
