#include "titanium/train/inference/load_model.h"

#include <algorithm>
#include <array>

#include "titanium/base/error.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/config/availability.h"
#include "titanium/models/model_weights.h"
#include "titanium/models/registry.h"
#include "titanium/remote/reading/local_copy.h"

namespace titanium::train {
namespace {

namespace fs = std::filesystem;

bool describes_model(const fs::path& folder) {
  return std::ranges::any_of(std::array{"config.json", "params.json", "transformer/config.json"},
                             [&](const char* name) { return fs::exists(folder / name); });
}

void fill(models::Model& model, const CheckpointRun& run, Device device) {
  model.compute_dtype = parse_dtype(run.config.training.mixed_precision_param);
  model.materialize(parse_dtype(run.config.training.dtype), device);
  model.build_buffers(device);
  models::load_weights(model, *checkpoint::open_weights(run.checkpoint));
}

}  // namespace

CheckpointRun plan_checkpoint_run(const config::LoadedConfig& loaded, const fs::path& given_checkpoint) {
  const fs::path checkpoint = remote::local_copy(given_checkpoint.string());
  config::refuse_unavailable_options(loaded);
  config::check_world_size(loaded, /*world_size=*/1);
  if (!fs::exists(checkpoint)) {
    throw UsageError(
        fmt::format("--checkpoint {} does not exist. Name a folder with Hugging Face weights (model.safetensors or "
                    "model.safetensors.index.json), a distributed checkpoint (.metadata) or a file of torch.save.",
                    checkpoint.string()));
  }
  const auto given = [&](const char* option) { return loaded.sources.contains(option); };
  CheckpointRun run{.checkpoint = checkpoint, .tokenizer = checkpoint, .config = loaded.config};
  std::string& assets = run.config.model.hf_assets_path;
  if (given("model.hf_assets_path") || !fs::exists(checkpoint / "tokenizer.json")) run.tokenizer = assets;
  if (given("training.seq_len")) run.seq_len = run.config.training.seq_len;
  if (!given("training.mixed_precision_param")) run.config.training.mixed_precision_param = "float32";
  if (describes_model(checkpoint)) assets = checkpoint.string();
  if (!given("model.flavor") && describes_model(assets)) run.config.model.flavor = "auto";
  if (!given("model.name")) {
    run.config.model.name = models::name_of_model_in(assets).value_or(run.config.model.name);
  }
  return run;
}

void compute_as_in_training(CheckpointRun& run, const config::LoadedConfig& loaded, Device device) {
  if (device.is_cpu()) return;
  const std::string& dtype = loaded.config.training.mixed_precision_param;
  run.config.training.mixed_precision_param = dtype;
  if (!loaded.sources.contains("training.dtype")) run.config.training.dtype = dtype;
}

int64_t model_positions(const CheckpointRun& run) {
  return as_language_model(models::build_model(run.config, std::nullopt))->max_seq_len();
}

std::unique_ptr<models::LanguageModel> load_model(const CheckpointRun& run, int64_t max_seq_len, Device device) {
  auto model = as_language_model(models::build_model(run.config, max_seq_len));
  fill(*model, run, device);
  return model;
}

std::unique_ptr<models::Model> load_any_model(const CheckpointRun& run, Device device) {
  auto model = models::build_model(run.config, std::nullopt);
  fill(*model, run, device);
  return model;
}

}  // namespace titanium::train
