// Writes weights in another format, slice by slice: memory stays at a few hundred megabytes whatever their size.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "titanium/checkpoint/weights_source.h"
#include "titanium/models/model.h"

namespace titanium::models {

// kOtherNames: one file of safetensors under the names of others who publish the model's weights, as Black Forest Labs.
enum class WeightsFormat { kDcp, kHuggingFace, kTorch, kOtherNames };

// The family whose weights others publish under names of their own: the one to which kOtherNames belongs.
std::string family_with_other_names();

struct ConvertOptions {
  WeightsFormat to = WeightsFormat::kDcp;
  // Null: everything that the source has, under its names and paths; impossible for names that are not ours. Else the
  // parameters of this model only, under our names, or those of the format.
  const Model* model = nullptr;
  // The dtype of the weights (not of training state). Without it they keep the dtype of the source; where the format
  // wants one dtype for all and the source has several, that is float32.
  std::optional<Dtype> dtype;
  std::filesystem::path assets;  // of a Hugging Face folder, see HuggingFaceExport
  bool replace = false;
};

// Writes the file (torch, other names) or folder (the others) `target`, which appears whole or not at all. It may be an
// address; of Hugging Face weights the temporary folder of this machine then holds a copy meanwhile, what is replaced
// there goes before the new comes, and who is killed meanwhile leaves objects that are no weights and may be replaced.
// Throws UsageError when it exists and is not to be replaced, is a folder that holds no weights, or the model has no
// other names; Error when the weights are not those of the model, cannot be read, or cannot be written.
void convert_weights(const checkpoint::WeightsSource& source, const std::filesystem::path& target,
                     const ConvertOptions& options);

}  // namespace titanium::models
