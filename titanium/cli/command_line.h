// The command lines of the small commands. CLI11 reads them; its headers cost a file that includes them 6 s, so only
// command_line.cpp does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "titanium/cli/commands.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace titanium::cli {

// One option of a CommandLine, which it belongs to.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption& required();
  CommandOption& shows_default();  // the help shows the value that the target had before
  CommandOption& positive();
  CommandOption& between(int64_t low, int64_t high);  // both included
  CommandOption& one_of(const std::vector<std::string>& values);
  CommandOption& excludes(const CommandOption& other);
  CommandOption& repeated();                         // one value each time that the option is given
  CommandOption& values(int count, char separator);  // so many, as a,b,c
  CommandOption& takes(const std::string& what);     // in the help

  bool given() const;

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // `names` are --names, separated by commas, or one without dashes for an argument by place. `target` outlives the
  // parsing; command_line.cpp lists the types that it may have.
  template <typename T>
  CommandOption option(const std::string& names, T& target, const std::string& help = "");
  // For the help alone: the command takes such an option out of its arguments before it parses them.
  CommandOption mention(const std::string& names, const std::string& help);
  CommandOption flag(const std::string& names, bool& target, const std::string& help);

  // Options of which exactly one has to be given.
  CommandLine& alternatives(const std::string& name, const std::string& description);

  // A command line inside this one; one of them has to be chosen.
  CommandLine& subcommand(const std::string& name, const std::string& description);
  bool chosen() const;

  // Leaves options of titanium train (--section.key) to run_options.
  void take_run_options();
  std::vector<std::string> run_options() const;

  // Fills the targets. Returns false when the user asked for --help, which is then on stdout. Throws UsageError for a
  // wrong command line.
  bool parse(Arguments args);

 private:
  explicit CommandLine(std::shared_ptr<CLI::App> app);

  std::shared_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<CommandLine>> parts_;
};

}  // namespace titanium::cli
