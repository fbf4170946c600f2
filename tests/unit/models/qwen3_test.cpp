#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/models/qwen3/model.h"
#include "titanium/models/registry.h"

namespace titanium::models {
namespace {

std::unique_ptr<Model> build(const std::string& flavor, int64_t seq_len = 4096) {
  JobConfig config;
  config.model.name = "qwen3";
  config.model.flavor = flavor;
  return build_model(config, seq_len);
}

TEST(Qwen3Sizes, ParameterCountsAreThePublishedOnes) {
  const std::map<std::string, int64_t> counts = {
      {"debugmodel", 31'987'968},     {"0.6B", 596'049'920},           {"1.7B", 1'720'574'976},
      {"4B", 4'022'468'096},          {"8B", 8'190'735'360},           {"14B", 14'768'307'200},
      {"32B", 32'762'123'264},        {"debugmodel_moe", 315'758'848}, {"30B-A3B", 30'532'122'624},
      {"235B-A22B", 235'093'634'560},
  };
  EXPECT_EQ(names_of(counts).size(), find_model("qwen3").flavors.size());
  for (const auto& [flavor, parameters] : counts) {
    EXPECT_EQ(build(flavor)->costs().size(4096).parameters, parameters) << flavor;
  }
}

TEST(Qwen3Sizes, OperationsAreThoseOfTheExpertsThatATokenMeets) {
  for (const auto& [flavor, active] : std::map<std::string, int64_t>{
           {"debugmodel_moe", 51'517'696}, {"30B-A3B", 3'353'032'704}, {"235B-A22B", 22'190'763'520}}) {
    const qwen3::Args& args = qwen3::flavors().at(flavor);
    const int64_t scores = args.n_layers * args.n_heads * 2 * args.head_dim * 4096;
    const auto expected = static_cast<double>(6 * (active - args.vocab_size * args.dim + scores));
    EXPECT_EQ(build(flavor)->costs().size(4096).flops_per_token, expected) << flavor;
  }
}

TEST(Qwen3Sizes, ABlockKeepsQueriesAndKeysBeforeTheirNormsToo) {
  const auto model = build("1.7B");
  const int64_t elements = 2 * 2048 + 2 * 24 * 128 + 2 * 6144 + 24 * 128;  // x and h; q, k, v, mixed; w1, w3; q and k
  const int64_t floats = 2 + 16 + 24;                                      // rstd; the log-sum-exp; rstd of heads
  EXPECT_EQ(model->levels_of(0).front().kept_bytes, (elements + floats) * 4);
  EXPECT_EQ(model->levels_of(0).back().kept_bytes, 2048 * 4);
}

TEST(Qwen3StateDict, NormsOfHeadsHaveHuggingFacesNamesAndNoRowsArePermuted) {
  const auto model = build("debugmodel");
  for (const auto& [ours, theirs] : std::map<std::string, std::string>{
           {"layers.3.attention.q_norm.weight", "model.layers.3.self_attn.q_norm.weight"},
           {"layers.3.attention.k_norm.weight", "model.layers.3.self_attn.k_norm.weight"},
           {"layers.3.attention.wq.weight", "model.layers.3.self_attn.q_proj.weight"},
           {"layers.3.attention.wk.weight", "model.layers.3.self_attn.k_proj.weight"}}) {
    const auto pieces = model->hugging_face()->pieces(ours, {128});
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].name, theirs);
    EXPECT_EQ(pieces[0].head_rows, 0);
  }
}

TEST(Qwen3StateDict, AnExpertIsATensorAndTheBiasThatBalancesHasNoPlace) {
  const auto model = build("debugmodel_moe");
  const auto pieces = model->hugging_face()->pieces("layers.3.moe.experts.w2", {64, 256, 768});
  ASSERT_EQ(pieces.size(), 64U);
  EXPECT_EQ(pieces[5].name, "model.layers.3.mlp.experts.5.down_proj.weight");
  EXPECT_EQ(pieces[5].shape(), (Shape{256, 768}));
  EXPECT_EQ(pieces[5].box, (Box{{5, 0, 0}, {1, 256, 768}}));
  EXPECT_EQ(model->hugging_face()->pieces("layers.3.moe.router.gate.weight", {64, 256})[0].name,
            "model.layers.3.mlp.gate.weight");
  EXPECT_TRUE(model->hugging_face()->pieces("layers.3.moe.expert_bias", {64}).empty());
}

qwen3::Args read_config(const std::string& text) {
  const auto file = test::test_folder() / "config.json";
  write_file_atomically(file, text);
  return qwen3::args_from_config_json(file);
}

std::string refusal(const std::string& text) {
  try {
    read_config(text);
  } catch (const UsageError& error) {
    const std::string sentence = error.what();
    return sentence.substr(sentence.find("config.json: ") + 13);
  }
  return "";
}

TEST(Qwen3Config, EveryFlavorGoesThroughConfigJson) {
  for (const auto& [flavor, args] : qwen3::flavors()) {
    const qwen3::Args back = read_config(qwen3::to_config_json(args, at::kBFloat16));
    EXPECT_EQ(to_json(back, qwen3::fields()), to_json(args, qwen3::fields())) << flavor;
  }
}

TEST(Qwen3Config, WhatIsMissingHasTransformersDefaults) {
  const qwen3::Args args = read_config(
      R"({"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 96, "vocab_size": 100})");
  EXPECT_EQ(args.head_dim, 128);
  EXPECT_EQ(args.n_kv_heads, 4);
  EXPECT_EQ(args.norm_eps, 1e-6);
  EXPECT_EQ(args.max_seq_len, 32768);
  EXPECT_FALSE(args.tied_embeddings);
}

TEST(Qwen3Config, OtherModelsAndWindowsAreRefused) {
  EXPECT_EQ(refusal(R"({"model_type": "llama"})"), "model_type is \"llama\", but should be \"qwen3\".");
  EXPECT_EQ(refusal(R"({"use_sliding_window": true})"),
            "use_sliding_window is true, but should be false: windows are not available.");
  EXPECT_EQ(refusal(R"({"attention_bias": true})"),
            "attention_bias is true, but should be false: Qwen 3 has no biases.");
}

constexpr const char* kWithExperts =
    R"({{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96, "vocab_size": 100, "num_experts_per_tok": 2, "moe_intermediate_size": 24, {}}})";

TEST(Qwen3Config, ExpertsAreReadInBothSpellings) {
  for (const char* key : {"num_experts", "num_local_experts"}) {
    const qwen3::Args args =
        read_config(fmt::format(kWithExperts, fmt::format(R"("{}": 8, "norm_topk_prob": true)", key)));
    ASSERT_TRUE(args.moe);
    EXPECT_EQ(args.moe->num_experts, 8);
    EXPECT_EQ(args.moe->top_k, 2);
    EXPECT_EQ(args.moe->moe_hidden_dim, 24);
    EXPECT_EQ(args.moe->num_shared_experts, 0);
    EXPECT_EQ(args.moe->score_func, "softmax");
    EXPECT_TRUE(args.moe->route_norm);
    EXPECT_FALSE(args.moe->score_before_experts);
    EXPECT_EQ(args.head_dim, 16);
  }
  EXPECT_FALSE(read_config(fmt::format(kWithExperts, R"("num_experts": 8)")).moe->route_norm);
}

TEST(Qwen3Config, ExpertsInSomeLayersOnlyAreRefused) {
  const auto with = [](const char* text) { return refusal(fmt::format(kWithExperts, text)); };
  EXPECT_EQ(with(R"("num_experts": 8, "decoder_sparse_step": 2)"),
            "decoder_sparse_step is 2, but should be 1: all layers have experts, or none.");
  EXPECT_EQ(with(R"("num_experts": 8, "mlp_only_layers": [1])"),
            "mlp_only_layers is an array, but should be empty: all layers have experts, or none.");
  EXPECT_EQ(with(R"("num_experts": 8, "mlp_only_layers": ["x"])"),
            "mlp_only_layers is an array, but should be an array of whole numbers.");
  EXPECT_EQ(with(R"("num_hidden": 8)"), "num_experts is missing, but should be given.");
  EXPECT_EQ(with(R"("num_experts": 1)"), "top_k = 2 must be between 1 and the number of experts, 1.");
}

TEST(Registry, AConfigJsonSaysWhichModelItDescribes) {
  const auto folder = test::test_folder();
  EXPECT_EQ(name_of_model_in(folder), std::nullopt);
  for (const auto& [type, name] : std::map<std::string, std::optional<std::string>>{{"\"qwen3\"", "qwen3"},
                                                                                    {"\"qwen3_moe\"", "qwen3"},
                                                                                    {"\"llama\"", "llama3"},
                                                                                    {"\"deepseek_v3\"", "deepseek_v3"},
                                                                                    {"\"deepseek_v2\"", "deepseek_v3"},
                                                                                    {"\"gpt_oss\"", "gpt_oss"},
                                                                                    {"\"llama4\"", "llama4"},
                                                                                    {"\"llama4_text\"", "llama4"},
                                                                                    {"\"other\"", std::nullopt},
                                                                                    {"3", std::nullopt}}) {
    write_file_atomically(folder / "config.json", fmt::format("{{\"model_type\": {}}}", type));
    EXPECT_EQ(name_of_model_in(folder), name) << type;
  }
}

}  // namespace
}  // namespace titanium::models
