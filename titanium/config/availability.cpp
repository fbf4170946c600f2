#include "titanium/config/availability.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/config/schema/schema.h"

namespace titanium::config {
namespace {

using Condition = bool (*)(const JobConfig& config);

bool always(const JobConfig&) { return true; }
bool when_recomputing(const JobConfig& c) { return c.activation_checkpoint.mode != "none"; }
bool when_recomputing_by_operator(const JobConfig& c) {
  return c.activation_checkpoint.mode == "selective" && c.activation_checkpoint.selective_ac_option == "op";
}

struct Missing {
  std::string_view option;
  // An option is missing when it differs from its default and this holds.
  Condition condition = always;
  std::string_view note = "not available yet";
  bool only_observes = false;
};

constexpr Missing observer(std::string_view option, Condition condition = always) {
  return {.option = option, .condition = condition, .only_observes = true};
}

// Everything that is not implemented yet. Delete an entry when its option works.
constexpr Missing kMissing[] = {
    {"model.converters",
     [](const JobConfig& c) { return std::ranges::count(c.model.converters, "quantize.linear.mx") > 0; },
     "quantize.linear.mx is not available yet"},
    observer("model.print_after_conversion"),
    {"parallelism.context_parallel_load_balancer",
     [](const JobConfig& c) {
       return c.parallelism.context_parallel_degree > 1 && c.parallelism.context_parallel_load_balancer == "ptrr";
     },
     "ptrr is not available yet"},
    {"parallelism.expert_parallel_comm_backend",
     [](const JobConfig& c) { return c.parallelism.expert_parallel_degree > 1; }, "deepep is not available yet"},
    observer("activation_checkpoint.visualize_memory_budget_pareto",
             [](const JobConfig& c) { return c.activation_checkpoint.mode == "memory_budget"; }),
    {"activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", when_recomputing_by_operator},
    {"activation_checkpoint.early_stop", when_recomputing},
    {"activation_checkpoint.preserve_rng_state", when_recomputing},
    observer("activation_checkpoint.determinism_check", when_recomputing),
    observer("activation_checkpoint.debug", when_recomputing),
    {"comm.mode", [](const JobConfig& c) { return c.comm.mode == "local_tensor"; },
     "local_tensor is not available yet"},
    {"fault_tolerance.enable"},
    {"experimental.custom_import"},
};

}  // namespace

std::vector<std::string> unavailable_options(const LoadedConfig& loaded, Purpose purpose) {
  std::vector<std::string> sentences;
  for (const Missing& missing : kMissing) {
    if (purpose == Purpose::kPlan && missing.only_observes) continue;
    const Option& option = schema().at(missing.option);
    if (option.is_default(loaded.config) || !missing.condition(loaded.config)) continue;
    sentences.push_back(
        fmt::format("not available yet: {} = {}", option.name(), to_short_text(option.get(loaded.config))));
  }
  return sentences;
}

void refuse_unavailable_options(const LoadedConfig& loaded, Purpose purpose) {
  const std::vector<std::string> sentences = unavailable_options(loaded, purpose);
  if (!sentences.empty()) throw UsageError(fmt::format("{}", fmt::join(sentences, "\n")));
}

std::string availability_note(std::string_view option) {
  for (const Missing& missing : kMissing) {
    if (missing.option == option) return std::string(missing.note);
  }
  return "";
}

}  // namespace titanium::config
