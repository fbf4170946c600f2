// What the WANDB_* variables ask of a Weights & Biases run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace titanium::observe {

// The run and the step at which another one goes on: "<run id>?_step=<step>".
struct WandbBranch {
  std::string run;
  int64_t step = 0;
};

struct WandbSettings {
  bool enabled = true;                     // WANDB_MODE is not "disabled"
  std::string entity;                      // WANDB_TEAM or WANDB_ENTITY
  std::string project = "torchtitan";      // WANDB_PROJECT
  std::string name;                        // WANDB_RUN_NAME or WANDB_NAME
  std::string id;                          // WANDB_RUN_ID; empty: one is made up, and kept when the run is resumed
  std::string notes;                       // WANDB_RUN_NOTES or WANDB_NOTES
  std::vector<std::string> tags;           // WANDB_RUN_TAGS or WANDB_TAGS, comma separated
  std::string group;                       // WANDB_RUN_GROUP
  std::string job_type;                    // WANDB_RUN_JOB_TYPE or WANDB_JOB_TYPE
  std::string folder;                      // WANDB_DIR; empty: the folder of the metrics
  std::optional<WandbBranch> resume_from;  // WANDB_RESUME_FROM
  std::optional<WandbBranch> fork_from;    // WANDB_FORK_FROM
};

// `get` gives the value of a variable, or null. Throws UsageError for an id that wandb refuses, for a WANDB_MODE that
// it does not know, and for a branch that is not of that form.
using GetVariable = std::function<const char*(const char* name)>;
WandbSettings read_wandb_settings(const GetVariable& get);

}  // namespace titanium::observe
