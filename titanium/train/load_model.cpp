#include "titanium/train/load_model.h"

#include "titanium/base/error.h"
#include "titanium/config/availability.h"
#include "titanium/models/registry.h"

namespace titanium::train {
namespace {

namespace fs = std::filesystem;

void check_kind(const fs::path& checkpoint) {
  if (!fs::exists(checkpoint)) {
    throw UsageError(
        fmt::format("--checkpoint {} does not exist. Name a folder with Hugging Face weights (model.safetensors or "
                    "model.safetensors.index.json).",
                    checkpoint.string()));
  }
  if (fs::exists(checkpoint / ".metadata")) {
    throw UsageError(fmt::format(
        "not available yet: --checkpoint {} is a distributed checkpoint (it has .metadata). Name a folder with Hugging "
        "Face weights.",
        checkpoint.string()));
  }
}

}  // namespace

CheckpointRun plan_checkpoint_run(const config::LoadedConfig& loaded, const fs::path& checkpoint) {
  config::refuse_unavailable_options(loaded);
  config::check_world_size(loaded, /*world_size=*/1);
  check_kind(checkpoint);
  const auto given = [&](const char* option) { return loaded.sources.contains(option); };
  CheckpointRun run{.checkpoint = checkpoint, .tokenizer = checkpoint, .config = loaded.config};
  if (given("model.hf_assets_path")) run.tokenizer = run.config.model.hf_assets_path;
  if (given("training.seq_len")) run.seq_len = run.config.training.seq_len;
  if (!given("training.mixed_precision_param")) run.config.training.mixed_precision_param = "float32";
  if (fs::exists(checkpoint / "config.json")) {
    if (!given("model.flavor")) run.config.model.flavor = "auto";
    run.config.model.hf_assets_path = checkpoint.string();
  }
  return run;
}

int64_t model_positions(const CheckpointRun& run) {
  return models::build_model(run.config, std::nullopt)->max_seq_len();
}

std::unique_ptr<models::LanguageModel> load_model(const CheckpointRun& run, int64_t max_seq_len, Device device) {
  auto model = models::build_model(run.config, max_seq_len);
  model->compute_dtype = parse_dtype(run.config.training.mixed_precision_param);
  model->materialize(parse_dtype(run.config.training.dtype), device);
  model->build_buffers(device);
  models::load_hugging_face_weights(*model, run.checkpoint);
  return model;
}

}  // namespace titanium::train
