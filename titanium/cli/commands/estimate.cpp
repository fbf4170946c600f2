// titanium estimate: the memory that a run needs.
#include "titanium/cli/command_line.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/config/validate.h"
#include "titanium/train/check_run.h"
#include "titanium/train/local_assets.h"

namespace titanium::cli {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

constexpr const char* kDescription =
    "Prints the memory that each rank of a run needs, by part, without a GPU and without allocating the model.\n"
    "All other options are those of titanium train: --job.config_file FILE, --section.key value ...";

struct Row {
  const char* name;
  int64_t train::MemoryPlan::* bytes;
};
constexpr Row kRows[] = {
    {"parameters", &train::MemoryPlan::parameters},
    {"copy in the compute dtype", &train::MemoryPlan::computed_copy},
    {"gradients", &train::MemoryPlan::gradients},
    {"optimizer states", &train::MemoryPlan::optimizer},
    {"communication", &train::MemoryPlan::communication},
    {"frozen networks", &train::MemoryPlan::frozen},
    {"activations", &train::MemoryPlan::activations},
    {"working memory", &train::MemoryPlan::working},
};

void print(const std::vector<train::ModelPlan>& plans, const JobConfig& config, int64_t ranks) {
  fmt::print("{} {} on {} rank{}: {}\n{:<26}", config.model.name, config.model.flavor, ranks, ranks == 1 ? "" : "s",
             describe(plans[0].dims), "GiB per rank");
  for (size_t stage = 0; plans.size() > 1 && stage < plans.size(); ++stage) {
    fmt::print(" {:>8}", fmt::format("pp {}", stage));
  }
  fmt::print("\n");
  const auto line = [&](const char* name, const auto& bytes_of) {
    fmt::print("{:<26}", name);
    for (const train::ModelPlan& plan : plans)
      fmt::print(" {:>8.2f}", static_cast<double>(bytes_of(plan.memory)) / kGiB);
    fmt::print("\n");
  };
  for (const Row& row : kRows) {
    if (row.bytes == &train::MemoryPlan::frozen && plans[0].memory.frozen == 0) continue;
    line(row.name, [&](const train::MemoryPlan& plan) { return plan.*row.bytes; });
  }
  line("gradients in freed room", [](const train::MemoryPlan& plan) { return -plan.shared; });
  line("together", [](const train::MemoryPlan& plan) { return plan.total(); });
  if (plans[0].dims.ep == 1) return;
  fmt::print("Rows of experts, which depend on what tokens choose:\n");
  line("of that with equal loads", [](const train::MemoryPlan& plan) { return plan.expert_rows; });
  line("all tokens to one rank", [](const train::MemoryPlan& plan) { return plan.most_rows; });
  line("together in that case", [](const train::MemoryPlan& plan) { return plan.worst_total(); });
}

}  // namespace

int run_estimate(Arguments args) {
  int64_t ranks = 0;
  double device_gib = 0;
  CommandLine app(kDescription, "estimate");
  app.take_run_options();
  app.option("--ranks", ranks, "Ranks of the run (default: as few as the degrees ask for)").positive();
  app.option("--device-gib", device_gib, "Memory of a device: fail if a rank needs more").positive();
  if (!app.parse(args)) return 0;
  const config::LoadedConfig loaded = train::with_local_assets(config::load_config(app.run_options()));
  if (ranks == 0) ranks = config::fewest_ranks(loaded.config.parallelism);
  train::check_options(loaded, ranks, config::Purpose::kPlan);
  std::vector<train::ModelPlan> plans;
  for (const int rank : train::pipeline_ranks(loaded.config.parallelism, ranks)) {
    plans.push_back(train::plan_model(loaded.config, ranks, rank));
  }
  print(plans, loaded.config, ranks);
  if (device_gib == 0) return 0;
  for (const train::ModelPlan& plan : plans) check_fits(plan.memory, static_cast<int64_t>(device_gib * kGiB));
  fmt::print("fits into {} GiB\n", device_gib);
  return 0;
}

}  // namespace titanium::cli
