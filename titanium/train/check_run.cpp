#include "titanium/train/check_run.h"

#include "titanium/base/collect_errors.h"
#include "titanium/models/model_converters.h"
#include "titanium/models/registry.h"
#include "titanium/train/load_checkpoint.h"
#include "titanium/train/task/tasks.h"

namespace titanium::train {
namespace {

// What a model that does not exist would read is not known; the plan says that it does not.
std::vector<std::string> check_data(const JobConfig& config) {
  const std::vector<std::string> known = models::model_names();
  if (std::ranges::find(known, config.model.name) == known.end()) return {};
  return find_task(models::find_model(config.model.name).training.task).check_files(config);
}

std::vector<std::string> check_files(const JobConfig& config, const std::vector<int>& ranks) {
  std::vector<std::string> sentences = check_data(config);
  collect_errors(sentences, [&] {
    // For the others too: find_load_source shares what rank 0 sees.
    if (std::ranges::find(ranks, 0) != ranks.end()) check_load_source(config);
  });
  return sentences;
}

}  // namespace

void check_options(const config::LoadedConfig& loaded, int64_t world_size, config::Purpose purpose) {
  config::refuse_unavailable_options(loaded, purpose);
  config::check_world_size(loaded, world_size);
  if (loaded.config.checkpoint.create_seed_checkpoint && world_size != 1) {
    throw UsageError(fmt::format(
        "checkpoint.create_seed_checkpoint is made by one rank, and there are {}. Start it with NGPU=1.", world_size));
  }
}

RunCheck check_run(const JobConfig& config, int64_t world_size, const std::vector<int>& ranks) {
  RunCheck check;
  collect_errors(check.problems, [&] {
    std::vector<ModelPlan> plans;
    for (const int rank : ranks) plans.push_back(plan_model(config, world_size, rank));
    check.plans = std::move(plans);
  });
  collect_errors(check.problems, [&] {
    if (config.training.device == "cpu") models::check_converters(config, nullptr);
  });
  check.files = check_files(config, ranks);
  return check;
}

void refuse_problems(const RunCheck& check) {
  std::vector<std::string> sentences = check.problems;
  sentences.insert(sentences.end(), check.files.begin(), check.files.end());
  if (!sentences.empty()) throw UsageError(fmt::format("{}", fmt::join(sentences, "\n")));
}

std::vector<int> pipeline_ranks(const config::Parallelism& options, int64_t world_size) {
  const int64_t stages = parallel::parallel_dims(options, world_size).pp;
  std::vector<int> ranks;
  for (int64_t stage = 0; stage < stages; ++stage) ranks.push_back(static_cast<int>(stage * world_size / stages));
  return ranks;
}

}  // namespace titanium::train
