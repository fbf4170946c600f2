#include "titanium/cli/program.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>

#include "titanium/base/error.h"
#include "titanium/base/files/mapped_range.h"
#include "titanium/base/log.h"
#include "titanium/base/terminal/terminal.h"
#include "titanium/base/text/nearest_name.h"
#include "titanium/cli/commands.h"
#include "titanium/cli/error_sentence.h"
#include "titanium/cli/help.h"
#include "titanium/data/fetchable.h"
#include "titanium/models/registry.h"
#include "titanium/tensor/version.h"

namespace titanium::cli {
namespace {

constexpr const char* kVersion = "0.1.0";

int run_command(const std::string& name, std::span<const std::string> args) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) {
      set_help_command(name, command, args);
      return command.run(args);
    }
    names.emplace_back(command.name);
  }
  const auto nearest = nearest_name(name, names);
  throw UsageError(fmt::format("there is no command '{}'. {}", name,
                               nearest ? fmt::format("Did you mean '{}'?", *nearest)
                                       : fmt::format("The commands are: {}.", fmt::join(names, ", "))));
}

// Takes --quiet out of the arguments of any command, but not out of those of a program that it starts.
bool take_quiet(std::vector<std::string>& args) {
  const auto own_end = std::ranges::find(args, "--");
  const auto rest = std::remove(args.begin(), own_end, "--quiet");
  const bool quiet = rest != own_end;
  args.erase(rest, own_end);
  return quiet;
}

int run(std::vector<std::string> args) {
  if (take_quiet(args)) silence_progress();
  data::know_owners(models::owner_at_hub);
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    std::fputs(program_help().c_str(), args.empty() ? stderr : stdout);
    return args.empty() ? 2 : 0;
  }
  if (args[0] == "--version") {
    fmt::print("titanium {} ({})\n", kVersion, library_versions());
    return 0;
  }
  return run_command(args[0], std::span(args).subspan(1));
}

// Does not throw where stderr cannot be written, as fmt's print does.
void say(const std::string& sentence) {
  std::string line = "titanium: " + sentence;
  if (log_format() == LogFormat::kJson) line = to_json_line({.level = LogLevel::kError, .message = line});
  std::fputs((line + "\n").c_str(), stderr);
}

int run_and_report(const std::vector<std::string>& args) {
  try {
    return run(args);
  } catch (const UsageError& error) {
    say(error_sentence(error));
    return 2;
  } catch (const std::exception& error) {
    const bool of_output = std::ferror(stdout) != 0 && dynamic_cast<const std::system_error*>(&error) != nullptr;
    if (!of_output) say(error_sentence(error));
    return 1;
  }
}

// An exception that no thread has caught.
[[noreturn]] void end_after_unhandled_exception() {
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
    say("the program was terminated, a bug in Titanium.");
  } catch (const std::exception& error) {
    say(error_sentence(error));
  } catch (...) {
    say("unexpected error of no known kind, a bug in Titanium.");
  }
  std::fflush(nullptr);
  std::_Exit(1);
}

// A full disk or a closed pipe shows when the last of the output is written, or has shown before.
int with_all_output_written(int code) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written) return code;
  say(fmt::format("not all of the output could be written to stdout{}.",
                  errno == 0 ? "" : fmt::format(": {}", std::strerror(errno))));
  return code == 0 ? 1 : code;
}

}  // namespace

int run_program(const std::vector<std::string>& args) {
  std::set_terminate(end_after_unhandled_exception);
  explain_lost_pages();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the one who writes, as a full disk is
  const int code = run_and_report(args);
  errno = 0;
  return with_all_output_written(code);
}

}  // namespace titanium::cli
