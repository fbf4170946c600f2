#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/models/llama4/model.h"
#include "titanium/models/registry.h"

namespace titanium::models {
namespace {

using llama4::Args;

std::unique_ptr<Model> build(const std::string& flavor) {
  JobConfig config;
  config.model.name = "llama4";
  config.model.flavor = flavor;
  return build_model(config, 4096);
}

TEST(Llama4Sizes, ParametersAndOperationsAreThoseOfTheReference) {
  const std::map<std::string, std::pair<int64_t, int64_t>> counts = {
      // all, and those that a token meets
      {"debugmodel", {15'017'216, 6'759'680}},
      {"17bx16e", {107'769'861'120, 17'172'894'720}},
      {"17bx128e", {400'711'848'960, 17'184'691'200}},
  };
  EXPECT_EQ(2 * counts.size(), find_model("llama4").flavors.size());
  for (const auto& [flavor, count] : counts) {
    for (const std::string& variant : {flavor, flavor + "_irope"}) {
      const Args& args = llama4::flavors().at(variant);
      const ModelSize size = build(variant)->costs().size(4096);
      EXPECT_EQ(size.parameters, count.first) << variant;
      const int64_t scores = args.n_layers * args.n_heads * 2 * args.head_dim * 4096;
      const auto expected = static_cast<double>(6 * (count.second - args.vocab_size * args.dim + scores));
      EXPECT_EQ(size.flops_per_token, expected) << variant;
    }
  }
}

TEST(Llama4StateDict, GateAndUpShareATransposedTensor) {
  const auto model = build("debugmodel");
  const Shape shape = {8, 512, 256};
  for (const auto& [ours, begin] : std::map<std::string, int64_t>{{"w1", 0}, {"w3", 512}}) {
    const auto pieces = model->hugging_face()->pieces("layers.1.moe.experts." + ours, shape);
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].name, "model.layers.1.feed_forward.experts.gate_up_proj");
    EXPECT_EQ(pieces[0].stand_in, "language_model.model.layers.1.feed_forward.experts.gate_up_proj");
    EXPECT_EQ(pieces[0].shape(), (Shape{8, 256, 1024}));
    EXPECT_EQ(pieces[0].begin, (Shape{0, 0, begin}));
    EXPECT_TRUE(pieces[0].transposed);
  }
  const auto down = model->hugging_face()->pieces("layers.1.moe.experts.w2", {8, 256, 512});
  EXPECT_EQ(down[0].shape(), (Shape{8, 512, 256}));
  const auto dense = model->hugging_face()->pieces("layers.0.feed_forward.w2.weight", {256, 768});
  EXPECT_EQ(dense[0].name, "model.layers.0.feed_forward.down_proj.weight");
  EXPECT_EQ(dense[0].shape(), (Shape{256, 768}));
  EXPECT_TRUE(model->hugging_face()->is_redundant("vision_model.patch_embedding.linear.weight"));
}

Args read_config(const std::string& text) {
  const auto file = test::test_folder() / "config.json";
  write_file_atomically(file, text);
  return llama4::args_from_config_json(file);
}

nlohmann::json text_config(const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json json = nlohmann::json::parse(R"({"model_type": "llama4_text", "attention_bias": false,
      "attention_chunk_size": 8192, "attn_scale": 0.1, "attn_temperature_tuning": 4, "floor_scale": 8192,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "interleave_moe_layer_step": 1,
      "intermediate_size": 8192, "intermediate_size_mlp": 16384, "max_position_embeddings": 10485760,
      "no_rope_layers": [], "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48,
      "num_key_value_heads": 8, "num_local_experts": 16, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                       "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": false, "use_qk_norm": true, "vocab_size": 202048})");
  json.update(changes);
  return json;
}

TEST(Llama4Config, TheTextPartOfAPublishedFileIsRead) {
  const nlohmann::json whole = {{"model_type", "llama4"}, {"text_config", text_config()}};
  for (const std::string& text : {whole.dump(), text_config().dump()}) {
    const Args args = read_config(text);
    Args expected = llama4::flavors().at("17bx16e");
    expected.use_qk_norm = expected.attn_temperature_tuning = true;
    expected.fixed_attn_block_size = 8192;
    for (int64_t layer = 3; layer < 48; layer += 4) expected.no_rope_layers.push_back(layer);
    EXPECT_EQ(to_json(args, llama4::fields()), to_json(expected, llama4::fields()));
    EXPECT_TRUE(llama4::has_rope(args, 0));
    EXPECT_FALSE(llama4::has_rope(args, 3));
  }
}

TEST(Llama4Config, LayersWithoutRopeAndChunksAreAsTheFileSays) {
  const Args args = read_config(text_config({{"num_hidden_layers", 3}, {"no_rope_layers", {0, 1, 1}}}).dump());
  EXPECT_EQ(args.no_rope_layers, (std::vector<int64_t>{0}));
  const Args plain = read_config(
      text_config({{"num_hidden_layers", 2}, {"layer_types", {"full_attention", "full_attention"}}}).dump());
  EXPECT_EQ(plain.fixed_attn_block_size, 0);
  EXPECT_FALSE(read_config(text_config({{"attn_temperature_tuning", false}}).dump()).attn_temperature_tuning);
}

TEST(Llama4Config, EveryFlavorGoesThroughConfigJson) {
  for (const auto& [flavor, args] : llama4::flavors()) {
    Args back = read_config(llama4::to_config_json(args, at::kBFloat16));
    back.attn_type = args.attn_type;
    back.attn_mask_type = args.attn_mask_type;
    EXPECT_EQ(to_json(back, llama4::fields()), to_json(args, llama4::fields())) << flavor;
  }
}

std::string refusal(const nlohmann::json& changes) {
  try {
    read_config(text_config(changes).dump());
  } catch (const UsageError& error) {
    const std::string sentence = error.what();
    return sentence.substr(sentence.find("config.json: ") + 13);
  }
  return "";
}

TEST(Llama4Config, WhatNoModelHereIsHasASentence) {
  EXPECT_EQ(refusal({{"model_type", "llama"}}),
            "model_type is \"llama\", but should be \"llama4_text\", or \"llama4\" with text_config.");
  EXPECT_EQ(refusal({{"no_rope_layers", {1, 1}}}),
            "no_rope_layers is an array, but should be a 0 or 1 for each of the layers.");
  EXPECT_EQ(refusal({{"moe_layers", {1, 3}}}),
            "moe_layers is an array, but should be each layer that interleave_moe_layer_step = 1 gives.");
  EXPECT_EQ(refusal({{"num_hidden_layers", 2}, {"layer_types", {"chunked_attention", "full_attention"}}}),
            "layer_types is an array, but should be \"chunked_attention\" where no_rope_layers has a 1, else "
            "\"full_attention\".");
  EXPECT_EQ(refusal({{"num_experts_per_tok", 17}}), "top_k = 17 must be between 1 and the number of experts, 16.");
}

}  // namespace
}  // namespace titanium::models
