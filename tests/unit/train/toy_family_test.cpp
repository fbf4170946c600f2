// The family of tests/support/toy_family.h does what every family does, though nothing in titanium/ knows of it.
#include "tests/support/toy_family.h"

#include "tests/support/compare_runs.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/models/hugging_face_export.h"
#include "titanium/models/model_weights.h"
#include "titanium/models/registry.h"
#include "titanium/train/inference/generate.h"

namespace titanium::train {
namespace {

using test::Layout;
using test::Outcome;

std::unique_ptr<models::LanguageModel> toy(const std::string& flavor = "tiny") {
  JobConfig config;
  config.model.name = "toy";
  config.model.flavor = flavor;
  return as_language_model(models::build_model(test::toy::spec(), config, test::tiny_config().training.seq_len));
}

Outcome train(const Layout& layout) {
  return test::train(test::configure(layout), layout.ranks(), [] { return toy(); });
}

TEST(ToyFamily, TrainsOnLayoutsAsOnOneRank) {
  const Outcome one = train({"one", 1, 1, 1});
  const auto pipeline = [](JobConfig& c) { c.parallelism.pipeline_parallel_schedule = "1F1B"; };
  const auto budget = [](JobConfig& c) {
    c.activation_checkpoint.mode = "memory_budget";
    c.activation_checkpoint.memory_budget = 0.4;
  };
  for (const Layout& layout :
       {Layout{"fsdp2_tp2", 1, 2, 2}, Layout{"pp2", 1, 1, 1, pipeline, 1, 2}, Layout{"budget", 1, 1, 1, budget}}) {
    SCOPED_TRACE(layout.name);
    test::expect_same_run(train(layout), one, 1e-5);
  }
}

TEST(ToyFamily, BlocksOfOneModelHaveLevelsOfTheirOwn) {
  const auto model = toy();
  EXPECT_EQ(model->levels_of(0).size(), 4U);
  EXPECT_EQ(model->levels_of(1).size(), 2U);
  EXPECT_GT(model->levels_of(1).front().kept_bytes, model->levels_of(0).front().kept_bytes);
}

TEST(ToyFamily, AParameterMayBeSeveralTensorsAtHuggingFace) {
  const auto model = toy("tied"), loaded = toy("tied");
  for (const auto& each : {model.get(), loaded.get()}) each->materialize(at::kFloat, at::kCPU);
  model->init_weights(1);
  loaded->init_weights(2);
  const auto folder = test::test_folder();
  const models::HuggingFaceExport out(*model, at::kFloat, "");
  out.create_files(folder);
  for (const Parameter* parameter : model->parameters()) {
    out.write(folder, parameter->fqn, parameter->shard, parameter->value.detach());
  }
  out.finish(folder);
  const auto source = checkpoint::open_safetensors(folder);
  EXPECT_EQ(source->tensor("model.layers.1.mlp.gate_proj.weight.lower").shape, (Shape{64, 32}));
  EXPECT_FALSE(source->contains("model.layers.1.mlp.gate_proj.weight"));
  models::load_weights(*loaded, *source);
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(loaded->parameters()[i]->value, model->parameters()[i]->value)) << i;
  }
}

TEST(ToyFamily, Generates) {
  const auto model = toy();
  model->materialize(at::kFloat, at::kCPU);
  model->build_buffers(at::kCPU);
  model->init_weights(3);
  const auto text = generate(*model, {1, 2, 3}, {.temperature = 0, .max_new_tokens = 5, .batch = 2}, at::kCPU);
  ASSERT_EQ(text.size(), 2U);
  EXPECT_EQ(text[0].size(), 5U);
  EXPECT_EQ(text[0], text[1]);
}

TEST(ToyFamily, FlavorsThatItDoesNotHaveAreRefusedByName) {
  try {
    toy("tinny");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "model.flavor = \"tinny\" is not a flavor of toy. Did you mean \"tiny\"? There are: tied, tiny. "
                 "\"auto\" reads the sizes from config.json in model.hf_assets_path.");
  }
}

}  // namespace
}  // namespace titanium::train
