#include "titanium/base/error.h"
#include "titanium/models/language_model.h"
#include "titanium/models/registry.h"

namespace titanium::models {
namespace {

struct Expected {
  const char* name;
  const char* flavor;
  int64_t parameters;
};

std::unique_ptr<Model> build(const std::string& name, const std::string& flavor, int64_t seq_len = 8192) {
  JobConfig config;
  config.model.name = name;
  config.model.flavor = flavor;
  return build_model(config, seq_len);
}

TEST(Llama3Sizes, ParameterCountsAreThePublishedOnes) {
  for (const auto& [name, flavor, parameters] : {
           Expected{"llama3", "debugmodel", 6'163'712},
           Expected{"llama3", "debugmodel_flex_attn", 6'163'712},
           Expected{"llama3", "debugmodel_varlen_attn", 6'163'712},
           Expected{"llama3", "1B", 1'235'814'400},
           Expected{"llama3", "3B", 3'212'749'824},
           Expected{"llama3", "8B", 8'030'261'248},
           Expected{"llama3", "8B_flex", 8'030'261'248},
           Expected{"llama3", "70B", 70'553'706'496},
           Expected{"llama3", "405B", 405'853'388'800},
           Expected{"llama2", "7B", 6'738'415'616},
           Expected{"llama2", "13B", 13'015'864'320},
           Expected{"llama2", "70B", 68'976'648'192},
       }) {
    EXPECT_EQ(build(name, flavor)->costs().size(8192).parameters, parameters) << name << " " << flavor;
  }
}

TEST(Llama3Sizes, FlopsPerTokenAreTorchtitans) {
  EXPECT_EQ(build("llama3", "debugmodel")->costs().size(2048).flops_per_token, 71'585'280.0);
  EXPECT_EQ(build("llama3", "8B")->costs().size(8192).flops_per_token, 57'914'449'920.0);
  EXPECT_EQ(build("llama3", "70B")->costs().size(8192).flops_per_token, 481'442'709'504.0);
  EXPECT_EQ(build("llama3", "405B")->costs().size(8192).flops_per_token, 2'625'449'459'712.0);
}

TEST(Llama3Sizes, ATiedHeadCostsItsProductThoughItIsNoParameter) {
  const ModelSize size = build("llama3", "1B")->costs().size(1);
  // 16 layers, 32 heads of 64
  EXPECT_EQ(size.flops_per_token, 6.0 * static_cast<double>(size.parameters) + 6.0 * 16 * 32 * 2 * 64);
}

TEST(Llama3Sizes, NoStorageIsAllocated) {
  const auto model = build("llama3", "405B");
  ASSERT_FALSE(model->parameters().empty());
  for (const Parameter* parameter : model->parameters()) EXPECT_FALSE(parameter->value.defined());
}

TEST(Registry, WithoutALengthTheModelHasItsOwnPositions) {
  JobConfig config;
  config.model.flavor = "8B";
  EXPECT_EQ(as_language_model(build_model(config, std::nullopt))->max_seq_len(), 131072);
  EXPECT_EQ(as_language_model(build_model(config, 64))->max_seq_len(), 64);
}

TEST(Registry, UnknownNamesGetTheNearestAndTheList) {
  const auto sentence = [](const std::string& name, const std::string& flavor) -> std::string {
    try {
      build(name, flavor);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(sentence("llama9", "8B"),
            "model.name = \"llama9\" is not a model of this build. Did you mean \"llama2\"? There are: llama2, llama3, "
            "qwen3, deepseek_v3, gpt_oss, llama4, flux.");
  EXPECT_TRUE(
      sentence("llama3", "8b").starts_with("model.flavor = \"8b\" is not a flavor of llama3. Did you mean \"8B\"?"));
}

TEST(Registry, BlockCausalNeedsAnAttentionThatHasIt) {
  JobConfig config;
  config.model.attn_type = "sdpa";
  config.model.attn_mask_type = "block_causal";
  EXPECT_THROW(build_model(config, 64), UsageError);
  config.model.attn_type = "varlen";
  EXPECT_TRUE(as_language_model(build_model(config, 64))->attends_inside_documents());
  config.model.attn_mask_type = "causal";
  EXPECT_FALSE(as_language_model(build_model(config, 64))->attends_inside_documents());
}

}  // namespace
}  // namespace titanium::models
