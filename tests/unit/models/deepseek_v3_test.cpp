#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/models/deepseek_v3/model.h"
#include "titanium/models/registry.h"

namespace titanium::models {
namespace {

using deepseek_v3::Args;

std::unique_ptr<Model> build(const std::string& flavor) {
  JobConfig config;
  config.model.name = "deepseek_v3";
  config.model.flavor = flavor;
  return build_model(config, 4096);
}

TEST(DeepseekSizes, ParametersAndOperationsAreThoseOfTheReference) {
  const std::map<std::string, std::pair<int64_t, int64_t>> counts = {
      // all, and those that a token meets
      {"debugmodel", {33'014'016, 28'098'816}},    {"debugmodel_flex_attn", {33'014'016, 28'098'816}},
      {"16B", {15'706'484'224, 2'661'150'208}},    {"236B", {235'741'434'880, 21'375'800'320}},
      {"671B", {671'026'404'352, 37'552'282'624}},
  };
  EXPECT_EQ(names_of(counts), find_model("deepseek_v3").flavors);
  for (const auto& [flavor, count] : counts) {
    const Args& args = deepseek_v3::flavors().at(flavor);
    const ModelSize size = build(flavor)->costs().size(4096);
    EXPECT_EQ(size.parameters, count.first) << flavor;
    const int64_t scores = args.n_layers * args.n_heads * (args.qk_head_dim() + args.v_head_dim) * 4096;
    const auto expected = static_cast<double>(6 * (count.second - args.vocab_size * args.dim + scores));
    EXPECT_EQ(size.flops_per_token, expected) << flavor;
  }
}

std::string name_of(const Model& model, const std::string& fqn) {
  const auto pieces = model.hugging_face()->pieces(fqn, {2, 3, 4});
  return pieces.empty() ? "" : pieces.front().name;
}

TEST(DeepseekStateDict, LatentsExpertsAndTheirBiasHaveHuggingFacesNames) {
  const auto v3 = build("671B"), v2 = build("16B");
  EXPECT_EQ(name_of(*v3, "layers.3.attention.wq_a.weight"), "model.layers.3.self_attn.q_a_proj.weight");
  EXPECT_EQ(name_of(*v3, "layers.3.attention.q_norm.weight"), "model.layers.3.self_attn.q_a_layernorm.weight");
  EXPECT_EQ(name_of(*v3, "layers.3.attention.wkv_a.weight"), "model.layers.3.self_attn.kv_a_proj_with_mqa.weight");
  EXPECT_EQ(name_of(*v2, "layers.3.attention.wq.weight"), "model.layers.3.self_attn.q_proj.weight");
  EXPECT_EQ(name_of(*v3, "layers.3.moe.experts.w1"), "model.layers.3.mlp.experts.0.gate_proj.weight");
  EXPECT_EQ(name_of(*v3, "layers.3.moe.shared_experts.w3.weight"), "model.layers.3.mlp.shared_experts.up_proj.weight");
  EXPECT_EQ(name_of(*v3, "layers.3.moe.expert_bias"), "model.layers.3.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(name_of(*v2, "layers.3.moe.expert_bias"), "");
}

TEST(DeepseekStateDict, LayersThatPredictFurtherTokensArePassedOver) {
  const auto model = build("671B");
  EXPECT_TRUE(model->hugging_face()->is_redundant("model.layers.61.eh_proj.weight"));
  EXPECT_FALSE(model->hugging_face()->is_redundant("model.layers.60.eh_proj.weight"));
  EXPECT_FALSE(model->hugging_face()->is_redundant("model.layersx"));
}

Args read_config(const std::string& text) {
  const auto file = test::test_folder() / "config.json";
  write_file_atomically(file, text);
  return deepseek_v3::args_from_config_json(file);
}

// What DeepSeek publishes, and moonlight and its like; `changes` replaces keys.
nlohmann::json published(const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json json = nlohmann::json::parse(R"({"model_type": "deepseek_v3", "attention_bias": false,
      "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432,
      "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
      "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
      "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
      "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                       "original_max_position_embeddings": 4096, "type": "yarn"},
      "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false,
      "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280})");
  json.update(changes);
  return json;
}

std::string log_line(Args args) {
  // What config.json does not say.
  args.attn_type = "sdpa";
  args.attn_mask_type = "causal";
  args.latent_norm_eps = 0;
  return to_json(args, deepseek_v3::fields());
}

TEST(DeepseekConfig, ThePublishedFileIsTheLargestFlavor) {
  Args expected = deepseek_v3::flavors().at("671B");
  expected.norm_eps = 1e-6;
  expected.max_seq_len = 163840;
  EXPECT_EQ(log_line(read_config(published().dump())), log_line(expected));
}

TEST(DeepseekConfig, FlavorsGoThroughConfigJson) {
  for (const auto& [flavor, args] : deepseek_v3::flavors()) {
    if (flavor == "236B") continue;
    EXPECT_EQ(log_line(read_config(deepseek_v3::to_config_json(args, at::kBFloat16))), log_line(args)) << flavor;
  }
  try {
    deepseek_v3::to_config_json(deepseek_v3::flavors().at("236B"), at::kBFloat16);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "this model has no form at Hugging Face: experts that are chosen by softmax have groups that are found "
        "by their best two, or normalised scores. Use a distributed checkpoint.");
  }
}

TEST(DeepseekConfig, WithoutGroupsOrYarnOrCompressedQueries) {
  const Args args = read_config(
      published({{"n_group", 1}, {"topk_group", 1}, {"rope_scaling", nullptr}, {"q_lora_rank", nullptr}}).dump());
  EXPECT_EQ(args.moe.num_expert_groups, 0);
  EXPECT_FALSE(args.yarn);
  EXPECT_EQ(args.q_lora_rank, 0);
  EXPECT_EQ(args.latent_norm_eps, 1e-6);
}

TEST(DeepseekConfig, VersionTwoIsReadWhereItsChoiceIsOurs) {
  const nlohmann::json lite = {{"model_type", "deepseek_v2"}, {"topk_method", "greedy"},   {"scoring_func", "softmax"},
                               {"norm_topk_prob", false},     {"n_shared_experts", 2},     {"n_group", 1},
                               {"routed_scaling_factor", 1},  {"first_k_dense_replace", 1}};
  const Args args = read_config(published(lite).dump());
  EXPECT_EQ(args.moe.score_func, "softmax");
  EXPECT_FALSE(args.moe.route_norm);
  EXPECT_EQ(args.moe.num_shared_experts, 2);
  EXPECT_EQ(args.n_dense_layers, 1);
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

TEST(DeepseekConfig, WhatNoModelHereIsHasASentence) {
  EXPECT_EQ(refusal({{"model_type", "llama"}}), "model_type is \"llama\", but should be \"deepseek_v3\".");
  EXPECT_EQ(refusal({{"topk_method", "greedy"}}), "topk_method is \"greedy\", but should be \"noaux_tc\".");
  EXPECT_EQ(refusal({{"scoring_func", "softmax"}}), "scoring_func is \"softmax\", but should be \"sigmoid\".");
  EXPECT_EQ(refusal({{"moe_layer_freq", 2}}),
            "moe_layer_freq is 2, but should be 1: all layers after the first ones have experts.");
  EXPECT_EQ(refusal({{"num_key_value_heads", 8}}), "num_key_value_heads is 8, but should be num_attention_heads.");
  EXPECT_EQ(refusal({{"rope_interleave", false}}),
            "rope_interleave is false, but should be true: adjacent elements are rotated.");
  EXPECT_EQ(refusal({{"rope_scaling", {{"type", "linear"}}}}),
            "rope_scaling: type is \"linear\", but should be \"yarn\" or \"default\".");
  nlohmann::json yarn = published()["rope_scaling"];
  yarn["attention_factor"] = 2.0;
  EXPECT_EQ(refusal({{"rope_scaling", yarn}}),
            "rope_scaling: attention_factor is 2.0, but should be left out: it follows from the other options.");
  yarn.erase("attention_factor");
  yarn["beta_fast"] = 1;
  EXPECT_EQ(refusal({{"rope_scaling", yarn}}), "rope_scaling: beta_fast is 1, but should be larger than beta_slow.");
  EXPECT_EQ(refusal({{"n_group", 7}}), "num_expert_groups = 7 must divide the 256 experts into groups of two or more.");
  EXPECT_EQ(refusal({{"qk_rope_head_dim", 63}}), "qk_rope_head_dim is 63, but should be even.");
  const nlohmann::json two = {{"model_type", "deepseek_v2"}, {"scoring_func", "softmax"}, {"norm_topk_prob", false}};
  nlohmann::json grouped = two;
  grouped["topk_method"] = "group_limited_greedy";
  nlohmann::json normalised = two, scored = two;
  normalised["norm_topk_prob"] = true;
  normalised["topk_method"] = scored["topk_method"] = "greedy";
  scored["scoring_func"] = "sigmoid";
  EXPECT_EQ(refusal(normalised), "norm_topk_prob is true, but should be false.");
  EXPECT_EQ(refusal(scored), "scoring_func is \"sigmoid\", but should be \"softmax\".");
  EXPECT_EQ(refusal(grouped),
            "topk_method is \"group_limited_greedy\", but should be \"greedy\": groups are chosen by their best expert "
            "there, which no model of this build does.");
}

}  // namespace
}  // namespace titanium::models
