// The program behind main(): picks the command, prints errors to stderr and turns them into exit codes.
#pragma once

#include <string>
#include <vector>

namespace titanium::cli {

// `args` without the program's name. Never throws.
int run_program(const std::vector<std::string>& args);

}  // namespace titanium::cli
