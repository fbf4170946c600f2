// titanium config show|check|options: what a configuration resolves to, whether it is valid, what there is to set.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/base/text/nearest_name.h"
#include "titanium/cli/command_line.h"
#include "titanium/cli/help.h"
#include "titanium/config/availability.h"
#include "titanium/config/dump.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/config/validate.h"
#include "titanium/data/fetchable.h"
#include "titanium/models/model_converters.h"
#include "titanium/train/check_run.h"
#include "titanium/train/known_gpus.h"
#include "titanium/train/local_assets.h"

namespace titanium::cli {
namespace {

constexpr const char* kHelp =
    "Shows and checks configurations.\n\n"
    "Usage:\n"
    "  titanium config show [--job.config_file FILE] [--section.key value ...]\n"
    "      The resolved configuration as TOML, with the source of each value: default, file and line, or\n"
    "      command line.\n"
    "  titanium config check FILE [--ranks N] [--gpu NAME | --gpu-memory GIB] [--section.key value ...]\n"
    "      Everything that titanium train would refuse before its first step and that needs no device:\n"
    "      options, rules, model, layout, pipeline schedule, and the files that the run reads. Exit\n"
    "      code 0 if nothing is wrong, else 2 and every problem. Tokenizers and data sets that\n"
    "      titanium download brings may be missing: it says how to fetch them.\n"
    "      --ranks N         ranks of the run (default: as few as the degrees ask for)\n"
    "      --gpu NAME        also whether the run fits into this GPU: H200, H100, A100-80G, ...\n"
    "      --gpu-memory GIB  the same for a memory of this size\n"
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

struct CheckArguments {
  int64_t ranks = 0;  // 0: as few as the degrees ask for
  std::string gpu;
  double gpu_memory = 0;
  std::vector<std::string> options;  // those of titanium train
};

CheckArguments parse_check_arguments(Arguments args) {
  if (args.empty() || args[0].starts_with("--")) {
    throw UsageError("config check needs a file: titanium config check FILE [--section.key value ...]");
  }
  CheckArguments parsed;
  CommandLine app("", "titanium config check");
  app.take_run_options();
  app.option("--ranks", parsed.ranks).positive();
  const auto gpu = app.option("--gpu", parsed.gpu);
  app.option("--gpu-memory", parsed.gpu_memory).positive().excludes(gpu);
  app.parse(args.subspan(1));
  parsed.options = app.run_options();
  parsed.options.insert(parsed.options.begin(), "--job.config_file=" + args[0]);
  return parsed;
}

// What a GPU would say that is not here. Nothing if none is named.
void check_gpu(const CheckArguments& args, const JobConfig& config, train::RunCheck& run) {
  if (args.gpu.empty() && args.gpu_memory == 0) return;
  GpuDeviceProperties gpu{.name = "the GPU", .total_memory = static_cast<int64_t>(args.gpu_memory * (1 << 30))};
  if (!args.gpu.empty()) gpu = train::known_gpu(args.gpu);
  try {
    if (!args.gpu.empty()) models::check_converters(config, &gpu);
    for (const train::ModelPlan& plan : run.plans) check_fits(plan.memory, gpu.total_memory);
  } catch (const UsageError& error) {
    run.problems.emplace_back(error.what());
  }
}

// Takes the sentences about files that need only be fetched out of those about missing and broken ones.
std::vector<std::string> take_files_to_fetch(train::RunCheck& run) {
  const auto broken = std::ranges::stable_partition(run.files, data::names_download);
  std::vector<std::string> sentences(run.files.begin(), broken.begin());
  run.files.erase(run.files.begin(), broken.begin());
  return sentences;
}

int check(Arguments args) {
  const CheckArguments parsed = parse_check_arguments(args);
  const config::LoadedConfig loaded = train::with_local_assets(config::load_config(parsed.options));
  print_hints(loaded);
  const JobConfig& config = loaded.config;
  const int64_t ranks = parsed.ranks > 0 ? parsed.ranks : config::fewest_ranks(config.parallelism);
  train::check_options(loaded, ranks, config::Purpose::kPlan);
  train::RunCheck run = train::check_run(config, ranks, train::pipeline_ranks(config.parallelism, ranks));
  check_gpu(parsed, config, run);
  for (const std::string& sentence : take_files_to_fetch(run)) fmt::print(stderr, "to fetch: {}\n", sentence);
  for (const std::string& sentence : config::unavailable_options(loaded)) fmt::print("{}\n", sentence);
  if (run.problems.empty() && !run.files.empty()) {
    fmt::print(stderr, "{} is valid but for files that are missing or broken:\n", args[0]);
  }
  train::refuse_problems(run);
  int64_t bytes = 0;
  for (const train::ModelPlan& plan : run.plans) bytes = std::max(bytes, plan.memory.total());
  fmt::print("{} {} on {} rank{}: {}, at most {:.2f} GiB per rank\n", config.model.name, config.model.flavor, ranks,
             ranks == 1 ? "" : "s", describe(run.plans[0].dims), static_cast<double>(bytes) / (1 << 30));
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
  if (args.empty()) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  if (asks_for_help(args)) {
    show_help(kHelp);
    return 0;
  }
  if (args[0] == "show") return show(args.subspan(1));
  if (args[0] == "check") return check(args.subspan(1));
  if (args[0] == "options") return options(args.subspan(1));
  const auto nearest = nearest_name(args[0], {"show", "check", "options"});
  throw UsageError(fmt::format("config has no '{}'. {}", args[0],
                               nearest ? fmt::format("Did you mean '{}'?", *nearest) : "Use show, check or options."));
}

}  // namespace titanium::cli
