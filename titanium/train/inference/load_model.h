// A model with the weights of a checkpoint, for commands that do not train.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "titanium/config/reading/load_config.h"
#include "titanium/models/language_model.h"

namespace titanium::train {

// What a checkpoint is run with.
struct CheckpointRun {
  std::filesystem::path checkpoint;  // whatever checkpoint::open_weights reads
  std::filesystem::path tokenizer;   // the checkpoint, if it has one and model.hf_assets_path was not given, else that
  JobConfig config;
  std::optional<int64_t> seq_len;  // training.seq_len where it was given
};

// Settles what the configuration leaves open: the computation is in fp32 unless training.mixed_precision_param was
// given, and unless model.flavor names others, the sizes come from the checkpoint's config.json or params.json, where
// it has one, else from that of model.hf_assets_path. Throws UsageError if `checkpoint` is missing or an option is not
// available.
CheckpointRun plan_checkpoint_run(const config::LoadedConfig& loaded, const std::filesystem::path& checkpoint);

// On a GPU the run computes in the dtype of training, also where plan_checkpoint_run has settled for fp32, and holds
// its weights in it unless training.dtype was given. For models with frozen encoders: in fp32 these take twice the
// memory that they take in training. On a CPU nothing changes.
void compute_as_in_training(CheckpointRun& run, const config::LoadedConfig& loaded, Device device);

// The longest sequence that the model was made for.
int64_t model_positions(const CheckpointRun& run);

// The model with its weights on `device`, for sequences of up to `max_seq_len` tokens. Throws as models::build_model,
// checkpoint::open_weights and models::load_weights do.
// `load_any_model` takes models of any kind, for as many positions as they were made for.
std::unique_ptr<models::LanguageModel> load_model(const CheckpointRun& run, int64_t max_seq_len, Device device);
std::unique_ptr<models::Model> load_any_model(const CheckpointRun& run, Device device);

}  // namespace titanium::train
