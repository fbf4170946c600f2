#include "titanium/config/reading/load_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "titanium/base/bundled.h"
#include "titanium/base/error.h"
#include "titanium/base/text/nearest_name.h"
#include "titanium/base/text/printable.h"
#include "titanium/base/text/thousands.h"
#include "titanium/config/reading/command_line.h"
#include "titanium/config/reading/toml_document.h"
#include "titanium/config/schema/extension.h"
#include "titanium/config/schema/schema.h"
#include "titanium/config/validate.h"

namespace titanium::config {
namespace {

constexpr size_t kMostProblems = 100;  // that are written out
constexpr std::string_view kCommandLine = "command line";

class Loader {
 public:
  LoadedConfig load(std::span<const std::string> args) {
    CommandLine command_line = parse_command_line(args);
    for (const Argument& argument : command_line.arguments) {
      if (argument.option->name() == "job.config_file") file_ = bundled(argument.value.get<std::string>()).string();
    }
    if (file_ && *file_ != "None") read_file();
    for (const Argument& argument : command_line.arguments) {
      assign(*argument.option, argument.value, std::string(kCommandLine));
    }
    problems_.insert(problems_.end(), command_line.problems.begin(), command_line.problems.end());
    settle_deprecated();
    check_extension();
    check_assets();
    check_rules();
    if (!problems_.empty()) throw UsageError(problems_text());
    hint_at_options_without_effect();
    return std::move(loaded_);
  }

 private:
  std::string problems_text() const {
    const auto shown = std::span(problems_).first(std::min(problems_.size(), kMostProblems));
    std::string text = fmt::format("{}", fmt::join(shown, "\n"));
    if (shown.size() == problems_.size()) return text;
    return text + fmt::format("\n{} more problems are not listed. Mend these first.",
                              with_thousands_separators(static_cast<int64_t>(problems_.size() - shown.size())));
  }

  void read_file() {
    try {
      const TomlNode root = read_toml(*file_);
      for (const TomlNode& child : root.children) read_node(child.key, child);
    } catch (const UsageError& error) {
      problems_.emplace_back(error.what());
    }
  }

  void read_node(const std::string& name, const TomlNode& node) {
    const std::string where = fmt::format("{}:{}", *file_, node.line);
    const Option* option = schema().find(name);
    if (option && node.is_table) {
      refuse(where, fmt::format("{} is an option, not a section. Write {} = ... below [{}].", name, option->key(),
                                option->section()));
    } else if (option) {
      assign(*option, node.value, where);
    } else if (!schema().is_section(name)) {
      refuse_unknown(where, name, node);
    } else if (!node.is_table) {
      refuse(where, fmt::format("{} = {}: {} is a section. Write its options below [{}].", name,
                                to_short_text(node.value), name, name));
    }
    if (option || !schema().is_section(name)) return;
    for (const TomlNode& child : node.children) read_node(fmt::format("{}.{}", name, child.key), child);
  }

  void refuse_unknown(const std::string& where, const std::string& name, const TomlNode& node) {
    if (problems_.size() >= kMostProblems) return refuse(where, "");  // counted, but not written out
    if (node.is_table) {
      const auto nearest = nearest_name(name, section_names());
      refuse(where, fmt::format("there is no section [{}]. {}", printable(name),
                                nearest ? fmt::format("Did you mean [{}]?", *nearest)
                                        : "`titanium config options` lists all sections."));
      return;
    }
    const auto nearest = nearest_option(name);
    refuse(where,
           fmt::format(
               "{} = {}: there is no option {}. {}", printable(name), to_short_text(node.value), printable(name),
               nearest ? fmt::format("Did you mean {}?", *nearest) : "`titanium config options` lists all options."));
  }

  static std::vector<std::string> section_names() {
    std::vector<std::string> names;
    for (const auto& title : schema().sections()) names.push_back(title.name);
    return names;
  }

  // A similar name, or the same key in another section.
  static std::optional<std::string> nearest_option(const std::string& name) {
    const std::string key = name.substr(name.rfind('.') + 1);
    std::vector<std::string> names;
    std::optional<std::string> same_key;
    for (const Option& option : schema().options()) {
      names.push_back(option.name());
      if (option.key() == key && !same_key) same_key = option.name();
    }
    return same_key ? same_key : nearest_name(name, names);
  }

  void assign(const Option& option, const Value& value, const std::string& where) {
    const Option::Outcome outcome = option.assign(loaded_.config, value);
    if (outcome.refusal) {
      failed_.insert(option.name());
      refuse(where, fmt::format("{} = {} {}", option.name(), to_short_text(value), *outcome.refusal));
      return;
    }
    if (outcome.hint) loaded_.hints.push_back(fmt::format("{}: {}", where, *outcome.hint));
    loaded_.sources[option.name()] = where;
  }

  void refuse(const std::string& where, const std::string& sentence) {
    problems_.push_back(fmt::format("{}: {}", where, sentence));
  }

  void settle_deprecated() {
    JobConfig& config = loaded_.config;
    if (config.model.tokenizer_path) {
      take_over("model.tokenizer_path", "model.hf_assets_path");
      config.model.hf_assets_path = *config.model.tokenizer_path;
    }
    if (!config.experimental.custom_args_module.empty()) {
      take_over("experimental.custom_args_module", "job.custom_config_module");
      config.job.custom_config_module = config.experimental.custom_args_module;
    }
  }

  void take_over(const std::string& former, const std::string& current) {
    loaded_.sources[current] = loaded_.source(former);
    loaded_.hints.push_back(
        fmt::format("{}: {} is deprecated and is read as {}.", loaded_.source(former), former, current));
  }

  void check_extension() {
    const std::string& module = loaded_.config.job.custom_config_module;
    const auto selected = find_extension(module);
    if (!selected) {
      refuse(loaded_.source("job.custom_config_module"),
             fmt::format("job.custom_config_module = {} is not built in. There are {}.", to_short_text(module),
                         extension_modules_text()));
      return;
    }
    for (const auto& [name, where] : loaded_.sources) {
      const Extension needed = schema().at(name).extension();
      if (needed == Extension::kNone || needed == *selected) continue;
      refuse(where, fmt::format("{} belongs to an extension. Set job.custom_config_module = \"{}\" to use it.", name,
                                extension_module(needed)));
    }
  }

  void check_assets() {
    const std::string& path = loaded_.config.model.hf_assets_path;
    std::error_code ignored;
    const bool is_address = path.find("://") != std::string::npos;
    if (!is_address && !std::filesystem::exists(bundled(path), ignored)) {
      loaded_.hints.push_back(fmt::format("{}: model.hf_assets_path = {} does not exist.",
                                          loaded_.source("model.hf_assets_path"), to_short_text(path)));
    }
  }

  void check_rules() {
    for (const Problem& problem : validate(loaded_.config)) {
      const bool rests_on_a_refused_value =
          std::ranges::any_of(problem.options, [&](const std::string& name) { return failed_.contains(name); });
      if (!rests_on_a_refused_value) problems_.push_back(located(loaded_, problem));
    }
  }

  void hint_at_options_without_effect() {
    std::vector<std::string> names;
    for (const Option& option : schema().options()) {
      if (option.is_without_effect() && !option.is_default(loaded_.config)) names.push_back(option.name());
    }
    if (names.empty()) return;
    loaded_.hints.push_back(
        fmt::format("No effect, because it has a meaning only in Python: {}.", fmt::join(names, ", ")));
  }

 public:
  // With the place of the first option that is not at its default.
  static std::string located(const LoadedConfig& loaded, const Problem& problem) {
    for (const std::string& name : problem.options) {
      if (const auto found = loaded.sources.find(name); found != loaded.sources.end()) {
        return fmt::format("{}: {}", found->second, problem.sentence);
      }
    }
    return problem.sentence;
  }

 private:
  std::optional<std::string> file_;
  LoadedConfig loaded_;
  std::vector<std::string> problems_;
  std::set<std::string> failed_;
};

}  // namespace

std::string LoadedConfig::source(std::string_view option) const {
  const auto found = sources.find(option);
  return found == sources.end() ? "default" : found->second;
}

LoadedConfig load_config(std::span<const std::string> args) { return Loader().load(args); }

void check_world_size(const LoadedConfig& loaded, int64_t world_size) {
  std::vector<std::string> sentences;
  for (const Problem& problem : validate(loaded.config, world_size)) {
    sentences.push_back(Loader::located(loaded, problem));
  }
  if (!sentences.empty()) throw UsageError(fmt::format("{}", fmt::join(sentences, "\n")));
}

}  // namespace titanium::config
