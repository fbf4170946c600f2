// titanium flight analyze: who is to blame when a job has hung.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "titanium/base/printable.h"
#include "titanium/cli/arguments.h"
#include "titanium/train/flight/analysis.h"

namespace titanium::cli {

int run_flight(Arguments args) {
  CLI::App app("What the flight recorders of a job's ranks say.", "flight");
  app.require_subcommand(1);
  CLI::App& analyze = *app.add_subcommand("analyze", "Name the rank that is to blame, in one sentence");
  std::string folder, prefix = "rank_";
  analyze.add_option("folder", folder, "comm.save_traces_folder inside the job.dump_folder of the run")->required();
  analyze.add_option("--prefix", prefix, "What the names of the dumps begin with")->capture_default_str();
  if (!parse_arguments(app, args)) return 0;
  const std::string sentence = train::explain_flights(train::read_flight_dumps(folder, prefix));
  fmt::print("{}\n", printable(sentence, sentence.size()));
  return 0;
}

}  // namespace titanium::cli
