// All models by name. A new model is one folder and one line in registry.cpp.
#pragma once

#include <filesystem>

#include "titanium/models/model_spec.h"

namespace titanium::models {

std::vector<std::string> model_names();

// The owner of the repository of this name at the Hugging Face hub; "" for one that no family publishes.
std::string owner_at_hub(const std::string& repository);

// Throws UsageError that lists what exists.
const ModelSpec& find_model(const std::string& name);

// Builds the model of config.model: see ModelSpec::build. Throws UsageError that lists the flavors that exist.
std::unique_ptr<Model> build_model(const JobConfig& config, std::optional<int64_t> max_seq_len);
// The same for a family that is not in the registry.
std::unique_ptr<Model> build_model(const ModelSpec& spec, const JobConfig& config, std::optional<int64_t> max_seq_len);

// The name of the model that the folder's config.json describes; nothing if there is none or it is of no model here.
// Where several families share a model_type, the last in the registry.
std::optional<std::string> name_of_model_in(const std::filesystem::path& folder);

// Fills what is stored here of a materialised model's parameters from Hugging Face weights, a file or a folder. Throws
// UsageError for quantised weights unless they are to be expanded, and as ModelWeights does.
void load_hugging_face_weights(Model& model, const std::filesystem::path& path, bool expand_quantised = false);

}  // namespace titanium::models
