// optimizer.param_groups: parameters that are updated with options of their own.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include "titanium/config/job_config.h"

namespace titanium::config {

// A group is written as a pattern and settings, which are named as the options: ["norm|bias", "weight_decay=0"].
struct ParameterGroup {
  std::string pattern;
  std::regex expression;  // searched for in names: "norm" is found in layers.0.attention_norm.weight
  Optimizer options;      // those of the section optimizer, with what the group changes
};

// Throws UsageError with one sentence about the first thing that cannot be read.
std::vector<ParameterGroup> parameter_groups(const Optimizer& optimizer);

// The group that takes the parameter: the first whose pattern is found in its name; null: none.
const ParameterGroup* find_group(const std::vector<ParameterGroup>& groups, const std::string& fqn);

}  // namespace titanium::config
