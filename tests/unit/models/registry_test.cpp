// What the registry knows of the families.
#include "titanium/models/registry.h"

#include <gtest/gtest.h>

namespace titanium::models {
namespace {

TEST(Registry, FamiliesKnowWhoPublishesTheirModels) {
  for (const auto& [repository, owner] :
       std::initializer_list<std::pair<const char*, const char*>>{{"Llama-2-7b", "meta-llama"},
                                                                  {"Llama-3.1-8B", "meta-llama"},
                                                                  {"Llama-4-Scout-17B-16E", "meta-llama"},
                                                                  {"Mistral-7B-v0.3", "mistralai"},
                                                                  {"Qwen3-8B", "Qwen"},
                                                                  {"DeepSeek-V3", "deepseek-ai"},
                                                                  {"deepseek-moe-16b-base", "deepseek-ai"},
                                                                  {"gpt-oss-20b", "openai"},
                                                                  {"FLUX.1-dev", "black-forest-labs"},
                                                                  {"Toy-1B", ""}}) {
    EXPECT_EQ(owner_at_hub(repository), owner) << repository;
  }
}

}  // namespace
}  // namespace titanium::models
