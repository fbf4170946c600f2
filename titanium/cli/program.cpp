#include "titanium/cli/program.h"

#include <fmt/ranges.h>

#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/base/nearest_name.h"
#include "titanium/cli/commands.h"
#include "titanium/tensor/version.h"

namespace titanium::cli {
namespace {

constexpr const char* kVersion = "0.1.0";

std::string usage() {
  std::string text =
      "Titanium pre-trains large generative models.\n\nUsage: titanium <command> [arguments]\n\nCommands:\n";
  for (const Command& command : commands()) text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  return text + "\ntitanium <command> --help explains a command; titanium --version names the libraries in use.\n";
}

int run_command(const std::string& name, std::span<const std::string> args) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command.run(args);
    names.emplace_back(command.name);
  }
  const auto nearest = nearest_name(name, names);
  throw UsageError(fmt::format("there is no command '{}'. {}", name,
                               nearest ? fmt::format("Did you mean '{}'?", *nearest)
                                       : fmt::format("The commands are: {}.", fmt::join(names, ", "))));
}

int run(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    std::fputs(usage().c_str(), args.empty() ? stderr : stdout);
    return args.empty() ? 2 : 0;
  }
  if (args[0] == "--version") {
    fmt::print("titanium {} ({})\n", kVersion, library_versions());
    return 0;
  }
  return run_command(args[0], std::span(args).subspan(1));
}

}  // namespace

int run_program(const std::vector<std::string>& args) {
  try {
    return run(args);
  } catch (const UsageError& error) {
    fmt::print(stderr, "titanium: {}\n", error.what());
    return 2;
  } catch (const c10::OutOfMemoryError& error) {
    fmt::print(stderr,
               "titanium: the GPU is out of memory. Use activation_checkpoint.mode = \"full\", a smaller "
               "training.local_batch_size or training.seq_len, or training.dtype = \"bfloat16\". ({})\n",
               error.what_without_backtrace());
    return 1;
  } catch (const c10::Error& error) {
    fmt::print(stderr, "titanium: {}\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "titanium: {}\n", error.what());
    return 1;
  }
}

}  // namespace titanium::cli
