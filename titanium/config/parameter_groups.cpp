#include "titanium/config/parameter_groups.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "titanium/base/error.h"
#include "titanium/config/schema/schema.h"

namespace titanium::config {
namespace {

// Options of the section that a group may change.
constexpr std::array<std::string_view, 7> kSettings = {"name",  "lr_factor", "weight_decay", "beta1",
                                                       "beta2", "eps",       "muon.momentum"};
// Longer patterns are none that a person has written, and the library compiles them by recursion.
constexpr size_t kLongestPattern = 1000;

std::regex compile(const std::string& pattern) {
  try {
    if (pattern.size() > kLongestPattern) throw std::regex_error(std::regex_constants::error_complexity);
    return std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error&) {
    throw UsageError(
        fmt::format("optimizer.param_groups: {} is not a regular expression. Begin a group with one, "
                    "such as \"norm|bias\".",
                    to_short_text(pattern)));
  }
}

// One "key=value" of a group.
void apply(const std::string& setting, Optimizer& options) {
  const size_t equals = std::min(setting.find('='), setting.size());
  const std::string_view key = std::string_view(setting).substr(0, equals);
  if (equals == setting.size() || std::ranges::find(kSettings, key) == kSettings.end()) {
    throw UsageError(
        fmt::format("optimizer.param_groups: {} must be a setting such as \"weight_decay=0\". There are {}.",
                    to_short_text(setting), fmt::join(kSettings, ", ")));
  }
  const Option& option = schema().at(fmt::format("optimizer.{}", key));
  JobConfig config;
  config.optimizer = options;
  const Option::Outcome outcome = option.assign(config, option.read_argument(setting.substr(equals + 1)));
  if (outcome.refusal) {
    throw UsageError(fmt::format("optimizer.param_groups: {}: {} {}", to_short_text(setting), key, *outcome.refusal));
  }
  options = config.optimizer;
}

}  // namespace

std::vector<ParameterGroup> parameter_groups(const Optimizer& optimizer) {
  std::vector<ParameterGroup> groups;
  for (const Names& texts : optimizer.param_groups) {
    if (texts.empty()) {
      throw UsageError(
          "optimizer.param_groups has an empty group. Begin each with a pattern, as in [\"norm|bias\", "
          "\"weight_decay=0\"].");
    }
    groups.push_back({.pattern = texts[0], .expression = compile(texts[0]), .options = optimizer});
    for (size_t i = 1; i < texts.size(); ++i) apply(texts[i], groups.back().options);
  }
  return groups;
}

const ParameterGroup* find_group(const std::vector<ParameterGroup>& groups, const std::string& fqn) {
  const auto found = std::ranges::find_if(
      groups, [&](const ParameterGroup& group) { return std::regex_search(fqn, group.expression); });
  return found == groups.end() ? nullptr : &*found;
}

}  // namespace titanium::config
