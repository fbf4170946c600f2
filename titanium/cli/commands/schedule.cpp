// titanium schedule show: the table of a pipeline schedule as text and picture.
#include <fmt/ranges.h>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/cli/command_line.h"
#include "titanium/schedule/check.h"
#include "titanium/schedule/csv.h"
#include "titanium/schedule/render.h"
#include "titanium/schedule/stage_split.h"

namespace titanium::cli {
namespace {

struct Options {
  std::string name, csv, write_csv, svg;
  std::optional<int> ranks, micro_batches, stages_per_rank;
  std::vector<int> costs = {1, 1, 1};
};

void declare(CommandLine& show, Options& options) {
  show.option("--schedule", options.name, fmt::format("{}", fmt::join(schedule::schedule_names(), ", "))).required();
  show.option("--pp", options.ranks, "Ranks of the pipeline; not needed with --csv");
  show.option("--microbatches", options.micro_batches, "Micro-batches of a step; not needed with --csv");
  show.option("--stages-per-rank", options.stages_per_rank, "What the schedule asks for unless given");
  show.option("--csv", options.csv, "Table of PipelineScheduleSingle or PipelineScheduleMulti, a line per rank");
  show.option("--costs", options.costs, "Time slots that F, I and W take; B takes those of I and W")
      .values(3, ',')
      .between(1, 1000)
      .shows_default();
  show.option("--svg", options.svg, "Write the picture to this file");
  show.option("--write-csv", options.write_csv, "Write the table to this file");
}

schedule::Table read_table(const schedule::Schedule& kind, const Options& options) {
  if (options.csv.empty()) throw UsageError(fmt::format("{} takes its table from a file. Give --csv.", kind.name));
  if (options.stages_per_rank)
    throw UsageError("--stages-per-rank does not go with --csv: the file places the stages.");
  schedule::Table table = schedule::read_csv(options.csv);
  schedule::check_fits(table, kind, options.ranks.value_or(static_cast<int>(table.ranks.size())),
                       options.micro_batches.value_or(table.micro_batches), options.csv);
  return table;
}

schedule::Table make_table(const schedule::Schedule& kind, const Options& options) {
  if (!kind.build) return read_table(kind, options);
  if (!options.csv.empty()) {
    throw UsageError(fmt::format(
        "--csv is for PipelineScheduleSingle and PipelineScheduleMulti; {} makes its own table.", kind.name));
  }
  if (!options.ranks || !options.micro_batches) throw UsageError("schedule show needs --pp and --microbatches.");
  const schedule::Table table =
      schedule::build_table(kind, {.ranks = *options.ranks,
                                   .stages_per_rank = options.stages_per_rank.value_or(kind.default_stages_per_rank),
                                   .micro_batches = *options.micro_batches});
  schedule::check_table(table);
  return table;
}

int show(const Options& options) {
  const schedule::Schedule& kind = schedule::find_schedule(options.name);
  const schedule::Table table = make_table(kind, options);
  const schedule::Timeline timeline = schedule::simulate(
      table,
      {.forward = double(options.costs[0]), .input = double(options.costs[1]), .weight = double(options.costs[2])});
  const std::string title = fmt::format("{}: {} ranks, {} stages, {} micro-batches", kind.name, table.ranks.size(),
                                        table.stages(), table.micro_batches);
  const std::string bubble = fmt::format("{} slots, bubble {:.2f} %", timeline.makespan, 100 * timeline.bubble);
  fmt::print("{}\n\n{}\n{}\npeak live activations per rank (of one stage and micro-batch): {}\n", title,
             schedule::to_text(table, timeline), bubble, fmt::join(schedule::peak_live_activations(table), " "));
  if (const auto warning = schedule::warn_of_few_micro_batches(table.micro_batches, table.stages())) {
    fmt::print(stderr, "titanium: {}\n", *warning);
  }
  if (!options.svg.empty()) {
    write_file_atomically(options.svg, schedule::to_svg(table, timeline, fmt::format("{}; {}", title, bubble)));
  }
  if (!options.write_csv.empty()) write_file_atomically(options.write_csv, schedule::to_csv(table));
  return 0;
}

}  // namespace

int run_schedule(Arguments args) {
  Options options;
  CommandLine app("Pipeline schedules: who computes what when. The picture is that of ideal ranks.", "schedule");
  declare(app.subcommand("show", "Checks a schedule and draws it, a row per rank, time to the right"), options);
  return app.parse(args) ? show(options) : 0;
}

}  // namespace titanium::cli
