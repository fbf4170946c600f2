#include "titanium/train/local_assets.h"

#include "titanium/base/bundled.h"
#include "titanium/remote/reading/local_copy.h"

namespace titanium::train {
namespace {

bool is_weights(const std::string& name) {
  for (const char* ending : {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

bool is_distributed_checkpoint(const std::string& path) {
  return remote::exists((std::filesystem::path(path) / ".metadata").string());
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is changed and given back.
config::LoadedConfig with_local_assets(config::LoadedConfig loaded) {
  JobConfig& config = loaded.config;
  const bool begins_with_assets =
      config.checkpoint.enable && config.checkpoint.initial_load_in_hf && !config.checkpoint.initial_load_path;
  config.model.hf_assets_path =
      remote::local_copy(bundled(config.model.hf_assets_path).string(), [&](const std::string& name) {
        const bool nested = name.find('/') != std::string::npos;
        return !nested && (!is_weights(name) || (begins_with_assets && name.ends_with(".safetensors")));
      }).string();
  auto& path = config.checkpoint.initial_load_path;
  if (path && !is_distributed_checkpoint(*path)) path = remote::local_copy(*path).string();
  return loaded;
}

}  // namespace titanium::train
