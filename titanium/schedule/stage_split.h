// Which modules of a model make up each pipeline stage, before anything is allocated. torchtitan's rule and option
// names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "titanium/schedule/schedules.h"

namespace titanium::schedule {

// Names of the children of a model by stage.
using StageModules = std::vector<std::vector<std::string>>;

// Names of the children of a model in the order in which it runs: those before its blocks (the embedding), its blocks,
// those after (norm and head).
struct ModelChildren {
  std::vector<std::string> before, blocks, after;
};

struct SplitRequest {
  int64_t ranks = 1;
  ModelChildren children;
  // How many layers the children before the blocks, and those after, count for.
  int64_t input_weight = 1;
  int64_t output_weight = 1;
  std::optional<int64_t> layers_per_stage;
  std::optional<StageModules> modules;  // by hand, instead of everything else
};

// The modules of all stages for a schedule. Throws UsageError with the option to change if the split does not go.
StageModules split_model(const Schedule& schedule, const SplitRequest& request);

// Number of stages: the schedule's default per rank, or what layers_per_stage gives, counted with the weights.
int64_t count_stages(const Schedule& schedule, const SplitRequest& request);

// The even split: layers + both weights are dealt to the stages, the first ones take what is left over; then the
// weights are taken off the first and last stage again.
StageModules split_evenly(int64_t stages, const ModelChildren& children, int64_t input_weight, int64_t output_weight);

// How many micro-batches a rank's batch gives. Throws UsageError if it does not divide.
int64_t count_micro_batches(int64_t local_batch_size, int64_t micro_batch_size);

// A sentence for the log if there are too few micro-batches to fill the pipeline.
std::optional<std::string> warn_of_few_micro_batches(int64_t micro_batches, int64_t stages);

}  // namespace titanium::schedule
