#include "titanium/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/cli/help.h"

namespace titanium::cli {
namespace {

// As CLI11 has it, without what an error says better: the ranges of numbers, and which options exclude each other.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty()) return " " + option->get_option_text();
    if (option->get_type_size() == 0) return "";
    std::string type = option->get_type_name();  // "INT:INT in [1 - 64]", "TEXT:{bash,zsh}"
    const size_t choices = type.find(":{");
    type = choices == std::string::npos ? type.substr(0, type.find(':')) : type.substr(choices + 1);
    const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    const std::string many = is_list                          ? " ..."
                             : option->get_expected_min() > 1 ? " x " + std::to_string(option->get_expected())
                                                              : "";
    const std::string usual = option->get_default_str().empty() ? "" : "=" + option->get_default_str();
    const bool has_two_names = option->get_positional() && option->nonpositional();
    return fmt::format(" {}{}{}{}", type, many, usual, option->get_required() && !has_two_names ? " REQUIRED" : "");
  }

  // A group of which some are required.
  std::string make_expanded(const CLI::App* group) const override {
    return make_group(group->get_description(), /*is_positional=*/false, group->get_options());
  }
};

void format_help(CLI::App& app, const std::shared_ptr<CLI::FormatterBase>& formatter) {
  app.formatter(formatter);
  for (CLI::App* subcommand : app.get_subcommands({})) format_help(*subcommand, formatter);
}

// Options of a run have a section: what has none was meant for the command.
void refuse_own_options(const CLI::App& app) {
  for (const std::string& extra : app.remaining()) {
    const std::string name = extra.substr(0, extra.find('='));
    if (name.size() > 2 && name.starts_with("--") && name.find('.') == std::string::npos)
      throw CLI::ExtrasError(std::vector<std::string>{name});
  }
}

}  // namespace

bool parse_arguments(CLI::App& app, Arguments args) {
  format_help(app, std::make_shared<HelpFormatter>());
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // the order that CLI11 wants
  try {
    app.parse(reversed);
    refuse_own_options(app);
    return true;
  } catch (const CLI::CallForHelp&) {
    show_help(app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}: {}. See titanium {} --help.", app.get_name(), error.what(), app.get_name()));
  }
}

}  // namespace titanium::cli
