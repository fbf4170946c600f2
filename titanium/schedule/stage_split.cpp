#include "titanium/schedule/stage_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "titanium/base/error.h"
#include "titanium/base/text/nearest_name.h"

namespace titanium::schedule {
namespace {

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

std::vector<std::string> in_order(const ModelChildren& children) {
  std::vector<std::string> names = children.before;
  names.insert(names.end(), children.blocks.begin(), children.blocks.end());
  names.insert(names.end(), children.after.begin(), children.after.end());
  return names;
}

int64_t count(const std::vector<std::string>& names) { return static_cast<int64_t>(names.size()); }

void check_stage_count(const Schedule& schedule, int64_t ranks, int64_t stages, const std::string& origin) {
  if (stages % ranks != 0) {
    refuse("{} {} stages, which {} pipeline ranks cannot share equally. Use a multiple of {}.", origin, stages, ranks,
           ranks);
  }
  try {
    check_stages_per_rank(schedule, stages / ranks);
  } catch (const UsageError& error) {
    refuse("{} {} stages on {} pipeline ranks. {}", origin, stages, ranks, error.what());
  }
}

// Every module once, and stages in the order in which the model runs.
StageModules check_modules(StageModules stages, const std::vector<std::string>& names) {
  std::map<std::string, size_t> order;
  for (const std::string& name : names) order.emplace(name, order.size());
  constexpr const char* kOption = "parallelism.module_fqns_per_model_part";
  size_t next = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (stages[stage].empty()) refuse("{}: stage {} has no module. Leave it out.", kOption, stage);
    for (const std::string& name : stages[stage]) {
      if (order.contains(name)) continue;
      const auto nearest = nearest_name(name, names);
      refuse("{}: stage {} has '{}', which the model does not have.{}", kOption, stage, name,
             nearest ? fmt::format(" Did you mean '{}'?", *nearest) : "");
    }
    std::ranges::sort(stages[stage], {}, [&](const std::string& name) { return order.at(name); });
    for (const std::string& name : stages[stage]) {
      const size_t found = order.at(name);
      if (found < next) refuse("{}: '{}' is there twice, or in a stage after its place.", kOption, name);
      if (found > next) refuse("{}: stage {} has '{}', but '{}' must come before.", kOption, stage, name, names[next]);
      ++next;
    }
  }
  if (next < names.size()) refuse("{}: '{}' is in no stage.", kOption, names[next]);
  return stages;
}

}  // namespace

StageModules split_model(const Schedule& schedule, const SplitRequest& request) {
  if (request.modules) {
    check_stage_count(schedule, request.ranks, static_cast<int64_t>(request.modules->size()),
                      "parallelism.module_fqns_per_model_part has");
    return check_modules(*request.modules, in_order(request.children));
  }
  return split_evenly(count_stages(schedule, request), request.children, request.input_weight, request.output_weight);
}

int64_t count_stages(const Schedule& schedule, const SplitRequest& request) {
  if (!request.layers_per_stage) return request.ranks * schedule.default_stages_per_rank;
  const int64_t size = *request.layers_per_stage, layers = count(request.children.blocks);
  const int64_t effective = layers + request.input_weight + request.output_weight;
  if (size < 1) refuse("parallelism.pipeline_parallel_layers_per_stage = {} must be at least 1.", size);
  const int64_t stages = (effective + size - 1) / size;
  check_stage_count(schedule, request.ranks, stages,
                    fmt::format("parallelism.pipeline_parallel_layers_per_stage = {} makes of {} layers, counting the "
                                "embedding as {} and the output as {},",
                                size, layers, request.input_weight, request.output_weight));
  return stages;
}

StageModules split_evenly(int64_t stages, const ModelChildren& children, int64_t input_weight, int64_t output_weight) {
  if (stages < 1) refuse("A pipeline of {} stages is none: there must be at least 1.", stages);
  const std::vector<std::string> names = in_order(children);
  if (stages == 1) return {names};
  const int64_t layers = count(children.blocks);
  const int64_t effective = layers + input_weight + output_weight;
  if (stages > effective) {
    refuse(
        "{} pipeline stages are too many for {} layers (counting the embedding as {} and the output as {}). Use "
        "fewer pipeline ranks, or more layers per stage.",
        stages, layers, input_weight, output_weight);
  }
  const int64_t least = effective / stages;
  const auto check_weight = [&](const char* option, int64_t weight) {
    if (weight > least) {
      refuse("parallelism.{} = {} is more than the {} layers of a stage ({} stages, {} layers). Use a smaller value.",
             option, weight, least, stages, layers);
    }
  };
  check_weight("pipeline_parallel_first_stage_less_layers", input_weight);
  check_weight("pipeline_parallel_last_stage_less_layers", output_weight);

  StageModules modules;
  auto next = names.begin();
  for (int64_t stage = 0; stage < stages; ++stage) {
    int64_t size = least + (stage < effective % stages);
    if (stage == 0) size += count(children.before) - input_weight;
    if (stage == stages - 1) size += count(children.after) - output_weight;
    modules.emplace_back(next, next + size);
    next += size;
  }
  return modules;
}

int64_t count_micro_batches(int64_t local_batch_size, int64_t micro_batch_size) {
  if (micro_batch_size < 1 || local_batch_size % micro_batch_size != 0) {
    refuse("parallelism.pipeline_parallel_microbatch_size = {} must divide training.local_batch_size = {}.",
           micro_batch_size, local_batch_size);
  }
  return local_batch_size / micro_batch_size;
}

std::optional<std::string> warn_of_few_micro_batches(int64_t micro_batches, int64_t stages) {
  if (micro_batches >= stages) return std::nullopt;
  return fmt::format(
      "{} micro-batches cannot fill a pipeline of {} stages: ranks will wait. Raise training.local_batch_size or lower "
      "parallelism.pipeline_parallel_microbatch_size.",
      micro_batches, stages);
}

}  // namespace titanium::schedule
