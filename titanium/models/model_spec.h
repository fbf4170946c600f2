// What a family of models hands to the registry: everything that the rest of the program knows of it by name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "titanium/config/job_config.h"
#include "titanium/models/model.h"

namespace titanium::models {

// How the models of a family are trained, where the job does not say.
struct TrainingDefaults {
  std::string task = "text";  // what is read, its batches and its loss: a name of train/task/tasks.cpp
  // Parameters that are updated with options of their own, written as optimizer.param_groups are. The groups of the job
  // come first, so that they may take what they want.
  std::vector<config::Names> parameter_groups;
  // activation_checkpoint.mode = "selective" recomputes all of every block, whatever its option says.
  bool selective_recomputes_all = false;
};

// Who publishes models of a family at the Hugging Face hub: the owner of repositories whose names begin so.
struct Publisher {
  std::string prefix;  // "Llama-"
  std::string owner;   // "meta-llama"
};

struct ModelSpec {
  std::string name;                  // model.name
  std::vector<std::string> flavors;  // model.flavor, without "auto"
  // The model of model.flavor and the other options, for sequences up to `max_seq_len`; without it for as many
  // positions as the model was made for. The flavor is one of the list, or "auto": then the sizes are in
  // model.hf_assets_path. No storage is allocated. Throws UsageError for options that do not fit the family.
  std::unique_ptr<Model> (*build)(const config::Model& options, std::optional<int64_t> max_seq_len);
  std::vector<std::string> hugging_face_types;  // model_type of its config.json; none: it is not there
  TrainingDefaults training{};
  std::vector<Publisher> publishers{};  // for the commands that sentences about missing files name
};

// The names of a table of flavors.
template <typename Flavors>
std::vector<std::string> names_of(const Flavors& flavors) {
  std::vector<std::string> names;
  for (const auto& [name, args] : flavors) names.push_back(name);
  return names;
}

}  // namespace titanium::models
