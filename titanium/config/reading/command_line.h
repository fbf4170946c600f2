// The options of a command line, before they are applied.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "titanium/config/schema/option.h"

namespace titanium::config {

struct Argument {
  const Option* option;
  Value value;
};

struct CommandLine {
  std::vector<Argument> arguments;
  std::vector<std::string> problems;
};

CommandLine parse_command_line(std::span<const std::string> args);

}  // namespace titanium::config
