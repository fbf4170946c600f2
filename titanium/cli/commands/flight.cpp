// titanium flight analyze: who is to blame when a job has hung.
#include <fmt/format.h>

#include "titanium/base/text/printable.h"
#include "titanium/cli/command_line.h"
#include "titanium/train/flight/analysis.h"

namespace titanium::cli {

int run_flight(Arguments args) {
  CommandLine app("What the flight recorders of a job's ranks say.", "flight");
  CommandLine& analyze = app.subcommand("analyze", "Name the rank that is to blame, in one sentence");
  std::string folder, prefix = "rank_";
  analyze.option("folder", folder, "comm.save_traces_folder inside the job.dump_folder of the run").required();
  analyze.option("--prefix", prefix, "What the names of the dumps begin with").shows_default();
  if (!app.parse(args)) return 0;
  const std::string sentence = train::explain_flights(train::read_flight_dumps(folder, prefix));
  fmt::print("{}\n", printable(sentence, sentence.size()));
  return 0;
}

}  // namespace titanium::cli
