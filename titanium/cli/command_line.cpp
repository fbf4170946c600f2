#include "titanium/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

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

CommandOption& CommandOption::required() {
  option_->required();
  return *this;
}

CommandOption& CommandOption::shows_default() {
  option_->capture_default_str();
  return *this;
}

CommandOption& CommandOption::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

CommandOption& CommandOption::between(int64_t low, int64_t high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

CommandOption& CommandOption::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

CommandOption& CommandOption::excludes(const CommandOption& other) {
  option_->excludes(other.option_);
  return *this;
}

CommandOption& CommandOption::repeated() {
  option_->expected(-1)->allow_extra_args(false);
  return *this;
}

CommandOption& CommandOption::values(int count, char separator) {
  option_->delimiter(separator)->expected(count);
  return *this;
}

CommandOption& CommandOption::takes(const std::string& what) {
  option_->type_name(what);
  return *this;
}

bool CommandOption::given() const { return option_->count() > 0; }

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_shared<CLI::App>(description, name)) {}
CommandLine::CommandLine(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}
CommandLine::~CommandLine() = default;

template <typename T>
CommandOption CommandLine::option(const std::string& names, T& target, const std::string& help) {
  return CommandOption(app_->add_option(names, target, help));
}
template CommandOption CommandLine::option(const std::string&, std::string&, const std::string&);
template CommandOption CommandLine::option(const std::string&, int&, const std::string&);
template CommandOption CommandLine::option(const std::string&, int64_t&, const std::string&);
template CommandOption CommandLine::option(const std::string&, uint64_t&, const std::string&);
template CommandOption CommandLine::option(const std::string&, double&, const std::string&);
template CommandOption CommandLine::option(const std::string&, std::optional<int>&, const std::string&);
template CommandOption CommandLine::option(const std::string&, std::optional<double>&, const std::string&);
template CommandOption CommandLine::option(const std::string&, std::vector<int>&, const std::string&);
template CommandOption CommandLine::option(const std::string&, std::vector<std::string>&, const std::string&);

CommandOption CommandLine::mention(const std::string& names, const std::string& help) {
  return CommandOption(app_->add_option(names, help));
}

CommandOption CommandLine::flag(const std::string& names, bool& target, const std::string& help) {
  return CommandOption(app_->add_flag(names, target, help));
}

CommandLine& CommandLine::alternatives(const std::string& name, const std::string& description) {
  CLI::App* group = app_->add_option_group(name, description);
  group->require_option(1);
  parts_.emplace_back(new CommandLine(std::shared_ptr<CLI::App>(app_, group)));
  return *parts_.back();
}

CommandLine& CommandLine::subcommand(const std::string& name, const std::string& description) {
  app_->require_subcommand(1);
  parts_.emplace_back(new CommandLine(std::shared_ptr<CLI::App>(app_, app_->add_subcommand(name, description))));
  return *parts_.back();
}

bool CommandLine::chosen() const { return app_->parsed(); }

void CommandLine::take_run_options() { app_->allow_extras(); }

std::vector<std::string> CommandLine::run_options() const { return app_->remaining(); }

bool CommandLine::parse(Arguments args) {
  format_help(*app_, std::make_shared<HelpFormatter>());
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // the order that CLI11 wants
  try {
    app_->parse(reversed);
    refuse_own_options(*app_);
    return true;
  } catch (const CLI::CallForHelp&) {
    show_help(app_->help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}: {}. See titanium {} --help.", app_->get_name(), error.what(), app_->get_name()));
  }
}

}  // namespace titanium::cli
