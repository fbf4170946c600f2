#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/support/fuzz.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/models/llama3/args.h"

namespace titanium::models::llama3 {
namespace {

using Json = nlohmann::json;

const Json kScaling = {{"rope_type", "llama3"},
                       {"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};

// Llama 3.2 1B as it is published.
Json published() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"attention_bias", false},
          {"head_dim", 64},
          {"hidden_act", "silu"},
          {"hidden_size", 2048},
          {"intermediate_size", 8192},
          {"max_position_embeddings", 131072},
          {"mlp_bias", false},
          {"model_type", "llama"},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 16},
          {"num_key_value_heads", 8},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling", kScaling},
          {"rope_theta", 500000.0},
          {"tie_word_embeddings", true},
          {"vocab_size", 128256}};
}

// The same as transformers 5 writes it.
Json written_by_transformers_5() {
  Json json = published();
  json["rope_parameters"] = json["rope_scaling"];
  json["rope_parameters"]["rope_theta"] = json["rope_theta"];
  json.erase("rope_scaling");
  json.erase("rope_theta");
  return json;
}

class ConfigJson : public ::testing::Test {
 protected:
  ConfigJson() : file_(fmt::format("{}titanium_config_{}.json", ::testing::TempDir(), ::getpid())) {}
  ~ConfigJson() override { std::filesystem::remove(file_); }

  Args read_text(const std::string& text) {
    write_file_atomically(file_, text);
    return args_from_config_json(file_);
  }
  Args read(const Json& json) { return read_text(json.dump()); }

  // The sentence after the file's name.
  std::string refusal(const std::string& text) {
    try {
      read_text(text);
    } catch (const UsageError& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.starts_with(file_.string())) << message;
      return message.substr(file_.string().size());
    }
    return "";
  }
  std::string refusal_with(const char* key, const Json& value) {
    Json json = published();
    if (value.is_discarded()) {
      json.erase(key);
    } else {
      json[key] = value;
    }
    return refusal(json.dump());
  }

  std::filesystem::path file_;
};

TEST_F(ConfigJson, BothSpellingsGiveTheFlavorOfTheTable) {
  const std::string expected = to_json(llama3_flavors().at("1B"), fields());
  EXPECT_EQ(to_json(read(published()), fields()), expected);
  EXPECT_EQ(to_json(read(written_by_transformers_5()), fields()), expected);
}

TEST_F(ConfigJson, WhatIsLeftOutHasLlamasDefaults) {
  const Args args = read({{"hidden_size", 64},
                          {"num_hidden_layers", 2},
                          {"num_attention_heads", 4},
                          {"intermediate_size", 160},
                          {"vocab_size", 100},
                          {"num_key_value_heads", nullptr},
                          {"rope_scaling", nullptr}});
  EXPECT_EQ(args.n_kv_heads, 4);
  EXPECT_EQ(args.head_dim, 16);
  EXPECT_EQ(args.rope_theta, 10000);
  EXPECT_EQ(args.norm_eps, 1e-6);
  EXPECT_EQ(args.max_seq_len, 2048);
  EXPECT_FALSE(args.rope_scaling.has_value());
  EXPECT_FALSE(args.tied_embeddings);
}

TEST_F(ConfigJson, EachWrongValueGetsASentence) {
  const Json missing = Json::parse("", nullptr, false);
  const std::pair<std::pair<const char*, Json>, const char*> cases[] = {
      {{"hidden_size", missing}, ": hidden_size is missing, but should be given."},
      {{"hidden_size", "2048"}, ": hidden_size is \"2048\", but should be a whole number."},
      {{"hidden_size", 2048.5}, ": hidden_size is 2048.5, but should be a whole number."},
      {{"hidden_size", {1, 2}}, ": hidden_size is an array, but should be a whole number."},
      {{"vocab_size", 0}, ": vocab_size is 0, but should be between 1 and 4194304."},
      {{"vocab_size", -3}, ": vocab_size is -3, but should be between 1 and 4194304."},
      {{"vocab_size", uint64_t{1} << 63}, ": vocab_size is 9223372036854775808, but should be between 1 and 4194304."},
      {{"num_hidden_layers", 5000}, ": num_hidden_layers is 5000, but should be between 1 and 4096."},
      {{"num_key_value_heads", 5}, ": num_key_value_heads is 5, but should be a divisor of num_attention_heads."},
      {{"head_dim", 63},
       ": head_dim is 63, but should be even (without it, hidden_size / num_attention_heads counts)."},
      {{"rms_norm_eps", 0}, ": rms_norm_eps is 0, but should be a positive number."},
      {{"rope_theta", "big"}, ": rope_theta is \"big\", but should be a positive number."},
      {{"tie_word_embeddings", 1}, ": tie_word_embeddings is 1, but should be true or false."},
      {{"model_type", "qwen3"}, ": model_type is \"qwen3\", but should be \"llama\"."},
      {{"hidden_act", "gelu"}, ": hidden_act is \"gelu\", but should be \"silu\"."},
      {{"attention_bias", true}, ": attention_bias is true, but should be false: Llama has no biases."},
      {{"rope_scaling", "llama3"}, ": rope_scaling is \"llama3\", but should be an object."},
      {{"rope_scaling", {{"rope_type", "yarn"}}},
       ": rope_scaling: rope_type is \"yarn\", but should be \"llama3\" or \"default\"."},
      {{"rope_scaling", {{"rope_type", "llama3"}}}, ": rope_scaling: factor is missing, but should be given."},
  };
  for (const auto& [change, sentence] : cases) EXPECT_EQ(refusal_with(change.first, change.second), sentence);
}

TEST_F(ConfigJson, HeadsMustShareTheHiddenSizeEvenly) {
  Json json = published();
  json.erase("head_dim");
  json["hidden_size"] = 2050;
  EXPECT_EQ(refusal(json.dump()),
            ": hidden_size is 2050, but should be a multiple of num_attention_heads, or head_dim given.");
}

TEST_F(ConfigJson, RopeFactorsMustLeaveARange) {
  Json scaling = kScaling;
  scaling["high_freq_factor"] = 0.5;
  EXPECT_EQ(refusal_with("rope_scaling", scaling),
            ": rope_scaling: high_freq_factor is 0.5, but should be not smaller than low_freq_factor.");
}

TEST_F(ConfigJson, WhatIsNoObjectIsRefused) {
  for (const char* text : {"[]", "3", "null"}) {
    EXPECT_EQ(refusal(text), " is not a JSON object. Expected Hugging Face's config.json of a Llama.") << text;
  }
  EXPECT_EQ(refusal(""), " is not valid JSON (at byte 1). Expected Hugging Face's config.json of a Llama.");
  EXPECT_EQ(refusal("{\"hidden_size\": 1"),
            " is not valid JSON (at byte 18). Expected Hugging Face's config.json of a Llama.");
}

TEST_F(ConfigJson, AMissingFileIsNamed) { EXPECT_THROW(args_from_config_json("/nowhere/config.json"), Error); }

TEST_F(ConfigJson, DeepNestingIsRefused) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  Json json = published();
  json["hidden_size"] = "@";
  std::string text = json.dump();
  text.replace(text.find("\"@\""), 3, deep);
  EXPECT_EQ(refusal(text), " nests deeper than 64 arrays and objects. Expected Hugging Face's config.json of a Llama.");
}

TEST_F(ConfigJson, DamagedFilesAreReadOrRefused) {
  const std::string seeds[] = {published().dump(), written_by_transformers_5().dump()};
  const std::string pieces[] = {"{",
                                "}",
                                "[",
                                "]",
                                ":",
                                ",",
                                "\"",
                                "null",
                                "true",
                                "-1",
                                "0",
                                "1e308",
                                "1e-320",
                                "9223372036854775807",
                                "18446744073709551615",
                                "\\ud800",
                                "\xff",
                                "rope_parameters"};
  test::fuzz(1500, [&](std::mt19937_64& random) {
    const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
    std::string text = seeds[below(2)];
    for (size_t edits = 1 + below(5); edits > 0; --edits) {
      const size_t at = below(text.size() + 1);
      if (below(3) == 0) text.erase(at, 1 + below(12));
      if (below(2) == 0) text.insert(std::min(at, text.size()), pieces[below(std::size(pieces))]);
      if (below(3) == 0 && at < text.size()) text[at] = static_cast<char>(below(256));
    }
    try {
      const Args args = read_text(text);
      EXPECT_GT(args.dim * args.n_layers * args.ffn_hidden_dim * args.head_dim, 0) << text;
    } catch (const UsageError& error) {
      EXPECT_LT(std::string_view(error.what()).size(), 1000U);
    }
  });
}

}  // namespace
}  // namespace titanium::models::llama3
