// A model with the weights of a checkpoint, for commands that do not train.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "titanium/config/load_config.h"
#include "titanium/models/language_model.h"

namespace titanium::train {

// What a checkpoint is run with.
struct CheckpointRun {
  std::filesystem::path checkpoint;  // folder with Hugging Face weights, or one safetensors file
  std::filesystem::path tokenizer;   // model.hf_assets_path where it was given, else the checkpoint
  JobConfig config;
  std::optional<int64_t> seq_len;  // training.seq_len where it was given
};

// Settles what the configuration leaves open: the computation is in fp32 unless training.mixed_precision_param was
// given, and the sizes come from the checkpoint's config.json, where it has one, unless model.flavor names others.
// Throws UsageError if `checkpoint` is missing or of a kind that cannot be read, or an option is not available.
CheckpointRun plan_checkpoint_run(const config::LoadedConfig& loaded, const std::filesystem::path& checkpoint);

// The longest sequence that the model was made for.
int64_t model_positions(const CheckpointRun& run);

// The model with its weights on `device`, for sequences of up to `max_seq_len` tokens. Throws as models::build_model
// and models::load_hugging_face_weights do.
std::unique_ptr<models::LanguageModel> load_model(const CheckpointRun& run, int64_t max_seq_len, Device device);

}  // namespace titanium::train
