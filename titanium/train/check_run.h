// What can be known of a run before it has devices: one list, which `train` goes through before it allocates anything
// and `titanium config check` without training.
#pragma once

#include <string>
#include <vector>

#include "titanium/config/availability.h"
#include "titanium/train/train_state.h"

namespace titanium::train {

// Options that this build lacks, and rules that need the number of ranks. Throws UsageError with one line per problem.
void check_options(const config::LoadedConfig& loaded, int64_t world_size, config::Purpose purpose);

struct RunCheck {
  std::vector<ModelPlan> plans;       // of the ranks that were asked for; empty if there is a problem with them
  std::vector<std::string> problems;  // one sentence for each: model, layout, pipeline schedule, memory
  std::vector<std::string> files;     // one sentence for each file that is missing or broken
};

// Plans these ranks and looks for every file that the run will read: tokenizer, data sets, the checkpoint to begin
// with. The options have passed check_options. Nothing of the model is allocated.
RunCheck check_run(const JobConfig& config, int64_t world_size, const std::vector<int>& ranks);

// Throws UsageError with one line per problem and file, if there are any.
void refuse_problems(const RunCheck& check);

// One rank for each place in the pipeline: the others are like one of these.
std::vector<int> pipeline_ranks(const config::Parallelism& options, int64_t world_size);

}  // namespace titanium::train
