// The subcommands of `titanium`. Each is a file of commands/, gets the arguments after its own name, and returns
// the exit code: 0 done, 1 runtime failure, 2 bad usage or configuration (usually by throwing UsageError).
//
// The table is the one source of `titanium --help`, of shell completion and of the man page.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace titanium::cli {

using Arguments = std::span<const std::string>;

int run_checkpoint(Arguments args);
int run_completion(Arguments args);
int run_config(Arguments args);
int run_convert(Arguments args);
int run_data(Arguments args);
int run_doctor(Arguments args);
int run_download(Arguments args);
int run_estimate(Arguments args);
int run_eval(Arguments args);
int run_flight(Arguments args);
int run_generate(Arguments args);
int run_generate_image(Arguments args);
int run_init(Arguments args);
int run_inspect(Arguments args);
int run_launch(Arguments args);
int run_man(Arguments args);
int run_report(Arguments args);
int run_schedule(Arguments args);
int run_tokenize(Arguments args);
int run_tokenizer(Arguments args);
int run_train(Arguments args);
int run_tune(Arguments args);
int run_watch(Arguments args);

struct Command {
  std::string_view group;  // commands of a group follow one another
  std::string_view name;
  std::string_view summary;
  int (*run)(Arguments args);
  std::string_view subcommands = {};  // names, separated by spaces
  bool takes_run_options = false;     // --section.key of titanium train
};

std::span<const Command> commands();

// Whether a command, with its subcommand after a space, takes the options of titanium train as well.
bool takes_run_options(std::string_view command);

}  // namespace titanium::cli
