#include "titanium/config/dump.h"

#include <nlohmann/json.hpp>

#include "tests/support/source_folder.h"
#include "tests/unit/config/config_file.h"
#include "titanium/base/files/file.h"
#include "titanium/config/reading/toml_document.h"
#include "titanium/config/schema/extension.h"
#include "titanium/config/schema/schema.h"

namespace titanium::config {
namespace {

// A value that the option takes and that is not its default.
Value other_value(const Option& option) {
  const std::vector<Value> candidates = {
      !option.default_value().is_boolean() || !option.default_value().get<bool>(),
      3,
      0.25,
      1,
      "quotes \" ' \\ tab\t newline\n del\x7f \xc3\xa9 \xe2\x82\xac",
      Value::parse(R"([["a", "b"], [], ["c d"]])"),
      Value::parse(R"(["a", "b c", ""])"),
      "AdamW",
      "original",
      "Adam",
      "cosine",
      "bfloat16",
      "float32",
      "never",
      "GPipe",
      "ptrr",
      "alltoall",
      "deepep",
      "async",
      "full",
      "none",
      "foreach",
      "rowwise",
      "cuda",
      "mxfp8_emulated",
      "fake_backend",
      "nccl",
      "diloco",
      "flex",
      "block_causal",
      "qwen3",
      "quantize.linear.mx",
      "json",
      "text",
      "uint32",
      "blocks",
      "document",
      "logit_normal",
      Value::parse(R"([{"name": "a b", "weight": 0.5, "weight_schedule": [[0, 1.0]]}])"),
  };
  for (const Value& candidate : candidates) {
    JobConfig config;
    if (!option.assign(config, candidate).refusal && !option.is_default(config)) return candidate;
  }
  return option.default_value();
}

void set_all_options_of(const std::string& module, LoadedConfig& loaded) {
  loaded.config.job.custom_config_module = module;
  for (const Option& option : schema().options()) {
    if (option.name() == "job.custom_config_module" || !is_selected(option, loaded.config)) continue;
    const auto outcome = option.assign(loaded.config, other_value(option));
    ASSERT_FALSE(outcome.refusal) << option.name();
    // Two options have a single allowed value.
    if (option.name() != "training.mixed_precision_reduce" && option.name() != "quantize.grouped_mm.mx.recipe_name") {
      EXPECT_FALSE(option.is_default(loaded.config)) << option.name();
    }
  }
}

void assign_tree(const TomlNode& node, const std::string& name, JobConfig& config) {
  if (const Option* option = schema().find(name)) {
    EXPECT_FALSE(option->assign(config, node.value).refusal) << name;
    return;
  }
  for (const TomlNode& child : node.children) {
    assign_tree(child, name.empty() ? child.key : name + "." + child.key, config);
  }
}

TEST(Dump, EveryOptionSurvivesTheWayThroughToml) {
  for (const char* module : {"", "torchtitan.models.flux.job_config", "torchtitan.components.ft.config"}) {
    LoadedConfig loaded;
    set_all_options_of(module, loaded);
    for (const bool with_sources : {false, true}) {
      LoadedConfig again;
      assign_tree(parse_toml(to_toml(loaded, with_sources), "dump"), "", again.config);
      EXPECT_EQ(to_json(again), to_json(loaded)) << module;
    }
  }
}

TEST(Dump, EveryOptionIsReadFromTheCommandLine) {
  for (const Option& option : schema().options()) {
    const Value value = other_value(option);
    if (option.type() == Type::kSwitch) continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    JobConfig from_toml;
    JobConfig from_text;
    ASSERT_FALSE(option.assign(from_toml, value).refusal) << option.name();
    const std::string argument = option.type() == Type::kList && value.is_array() ? "a,b c," : text;
    ASSERT_FALSE(option.assign(from_text, option.read_argument(argument)).refusal) << option.name();
    EXPECT_EQ(option.get(from_text), option.get(from_toml)) << option.name();
  }
}

TEST(Dump, ShownConfigurationsReadBackToThemselves) {
  for (const char* name : {"debug_model", "llama3_8b", "llama3_70b", "llama3_405b"}) {
    const std::string path = fmt::format("{}/configs/llama3/{}.toml", source_folder().string(), name);
    const LoadedConfig loaded =
        load_config(Args{"--job.config_file", path, "--optimizer.eps=1e-15", "--job.description=a \"b\" # c",
                         "--parallelism.context_parallel_load_balancer=None", "--lr_scheduler.decay_ratio=0.1"});
    LoadedConfig again = load(to_toml(loaded, true));
    again.config.job.config_file = path;  // the one option that the file cannot say
    EXPECT_EQ(to_json(again), to_json(loaded)) << name;
  }
}

TEST(Dump, LinesEndWithTheirSource) {
  const std::string path = write_config("[training]\nsteps = 5\n");
  const std::string text = to_toml(load_config(Args{"--job.config_file", path, "--debug.seed=1"}), true);
  EXPECT_NE(text.find(fmt::format("\nsteps = 5  # {}:2\n", path)), std::string::npos) << text;
  EXPECT_NE(text.find("\nseed = 1  # command line\n"), std::string::npos);
  EXPECT_NE(text.find("\nmax_norm = 1.0  # default\n"), std::string::npos);
  EXPECT_NE(text.find("\n# dataset_path = None  # default\n"), std::string::npos);
}

TEST(Dump, ExtensionOptionsAppearOnlyWhenSelected) {
  EXPECT_EQ(to_toml(load_config(Args{}), false).find("img_size"), std::string::npos);
  const std::string text =
      to_toml(load_config(Args{"--job.custom_config_module=torchtitan.models.flux.job_config"}), false);
  EXPECT_NE(text.find("img_size = 256"), std::string::npos);
  EXPECT_EQ(text.find("sync_steps"), std::string::npos);
}

TEST(Dump, JsonIsNestedAndKeepsTypes) {
  const auto json = nlohmann::json::parse(to_json(load_config(Args{"--training.dataloader.num_workers=2"})));
  EXPECT_EQ(json["training"]["dataloader"]["num_workers"], 2);
  EXPECT_EQ(json["training"]["max_norm"], 1.0);
  EXPECT_TRUE(json["training"]["dataset_path"].is_null());
  EXPECT_EQ(json["quantize"]["linear"]["mx"]["filter_fqns"], (Names{"output"}));
}

TEST(Dump, InvalidUtf8OfTheCommandLineIsReplaced) {
  const LoadedConfig loaded = load_config(Args{"--job.description=caf\xe9"});
  EXPECT_NE(to_json(loaded).find("caf\xef\xbf\xbd"), std::string::npos);
  EXPECT_NO_THROW(load(to_toml(loaded, true)));
}

TEST(Dump, OptionsPageIsInStep) {
  EXPECT_EQ(read_file(source_folder() / "docs/options.md", "page"), options_markdown())
      << "Run: build/titanium config options --markdown > docs/options.md";
}

TEST(Dump, HelpNamesEveryOptionAndMarksItsKind) {
  const std::string help = options_help();
  for (const Option& option : schema().options()) {
    EXPECT_NE(help.find("  --" + option.name()), std::string::npos) << option.name();
    EXPECT_TRUE(option.meaning().ends_with(".")) << option.name();
  }
  EXPECT_NE(help.find("  --compile.enable, --compile.no_enable  (default: false)"), std::string::npos);
  EXPECT_NE(help.find("[Titanium's own]"), std::string::npos);
  EXPECT_NE(help.find("[accepted without effect]"), std::string::npos);
}

TEST(Schema, OptionsOfASectionFollowOneAnother) {
  std::set<std::string> seen;
  std::string section;
  for (const Option& option : schema().options()) {
    if (option.section() == section) continue;
    section = option.section();
    EXPECT_TRUE(seen.insert(section).second) << section;
    EXPECT_TRUE(schema().is_section(section));
  }
}

TEST(Schema, EveryDefaultIsAllowed) {
  for (const Option& option : schema().options()) {
    JobConfig config;
    EXPECT_FALSE(option.assign(config, option.default_value()).refusal) << option.name();
  }
}

}  // namespace
}  // namespace titanium::config
