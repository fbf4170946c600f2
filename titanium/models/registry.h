// All models by name. A new model is one folder and one line in registry.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "titanium/config/job_config.h"
#include "titanium/models/language_model.h"

namespace titanium::models {

// The model of model.name, model.flavor, model.attn_type and model.attn_mask_type, for sequences up to `max_seq_len`;
// without it for as many positions as the model was made for.
// No storage is allocated: see Module::materialize. Flavor "auto" takes the sizes from config.json, or Meta's
// params.json, in model.hf_assets_path. Throws UsageError that lists what exists.
std::unique_ptr<LanguageModel> build_model(const JobConfig& config, std::optional<int64_t> max_seq_len);

std::vector<std::string> model_names();

// Fills what is stored here of a materialised model's parameters from Hugging Face weights, a file or a folder. Throws
// as ModelWeights does.
void load_hugging_face_weights(LanguageModel& model, const std::filesystem::path& path);

}  // namespace titanium::models
