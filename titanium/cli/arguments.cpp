#include "titanium/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/cli/help.h"

namespace titanium::cli {

bool parse_arguments(CLI::App& app, Arguments args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // the order that CLI11 wants
  try {
    app.parse(reversed);
    return true;
  } catch (const CLI::CallForHelp&) {
    show_help(app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}: {}. See titanium {} --help.", app.get_name(), error.what(), app.get_name()));
  }
}

}  // namespace titanium::cli
