// What main() calls: picks the command, prints errors to stderr and turns them into exit codes.
#pragma once

#include <string>
#include <vector>

namespace titanium::cli {

// `args` without the program's name. Never throws. Output that could not be written, to a full disk or a closed pipe,
// is a failure too. From the first call on, a mapped file that shrinks ends the process with a sentence, SIGXFSZ is
// ignored, and an exception that leaves a thread is a sentence too.
int run_program(const std::vector<std::string>& args);

}  // namespace titanium::cli
