#include "titanium/cli/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/base/nearest_name.h"
#include "titanium/config/availability.h"
#include "titanium/config/dump.h"
#include "titanium/config/load_config.h"
#include "titanium/models/registry.h"

namespace titanium::cli {
namespace {

constexpr const char* kHelp =
    "Shows and checks configurations.\n\n"
    "Usage:\n"
    "  titanium config show [--job.config_file FILE] [--section.key value ...]\n"
    "      The resolved configuration as TOML, with the source of each value: default, file and line, or command "
    "line.\n"
    "  titanium config check FILE [--section.key value ...]\n"
    "      Exit code 0 if FILE is valid together with the overrides, else 2 and every problem. Lists what is valid "
    "but\n"
    "      not available in this build.\n"
    "  titanium config options [--markdown]\n"
    "      Every option: type, default, meaning; with --markdown as the page docs/options.md.\n";

bool asks_for_help(Arguments args) {
  return std::ranges::any_of(args, [](const std::string& arg) { return arg == "--help" || arg == "-h"; });
}

void print_hints(const config::LoadedConfig& loaded) {
  for (const std::string& hint : loaded.hints) fmt::print(stderr, "hint: {}\n", hint);
}

int show(Arguments args) {
  const config::LoadedConfig loaded = config::load_config(args);
  print_hints(loaded);
  fmt::print("{}", config::to_toml(loaded, true));
  return 0;
}

int check(Arguments args) {
  if (args.empty() || args[0].starts_with("--")) {
    throw UsageError("config check needs a file: titanium config check FILE [--section.key value ...]");
  }
  std::vector<std::string> options = {"--job.config_file=" + args[0]};
  options.insert(options.end(), args.begin() + 1, args.end());
  const config::LoadedConfig loaded = config::load_config(options);
  print_hints(loaded);
  models::find_model(loaded.config.model.name);
  for (const std::string& sentence : config::unavailable_options(loaded)) fmt::print("{}\n", sentence);
  fmt::print("{} is valid.\n", args[0]);
  return 0;
}

int options(Arguments args) {
  if (args.empty()) {
    fmt::print("{}", config::options_help());
    return 0;
  }
  if (args.size() > 1 || args[0] != "--markdown") {
    throw UsageError(
        fmt::format("config options does not know '{}'. Use it alone or with --markdown.", fmt::join(args, " ")));
  }
  fmt::print("{}", config::options_markdown());
  return 0;
}

}  // namespace

int run_config(Arguments args) {
  if (args.empty() || asks_for_help(args)) {
    std::fputs(kHelp, args.empty() ? stderr : stdout);
    return args.empty() ? 2 : 0;
  }
  if (args[0] == "show") return show(args.subspan(1));
  if (args[0] == "check") return check(args.subspan(1));
  if (args[0] == "options") return options(args.subspan(1));
  const auto nearest = nearest_name(args[0], {"show", "check", "options"});
  throw UsageError(fmt::format("config has no '{}'. {}", args[0],
                               nearest ? fmt::format("Did you mean '{}'?", *nearest) : "Use show, check or options."));
}

}  // namespace titanium::cli
