// Sizes of Flux models.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "titanium/models/arg_fields.h"
#include "titanium/models/encoders/autoencoder_args.h"
#include "titanium/tensor/tensor.h"

namespace titanium::models::flux {

struct Args {
  int64_t in_channels = 64;  // elements of a patch, as many come out
  int64_t vec_in_dim = 768;
  int64_t context_in_dim = 4096;
  int64_t hidden_size = 3072;
  double mlp_ratio = 4.0;
  int64_t num_heads = 24;
  int64_t depth = 19;
  int64_t depth_single_blocks = 38;
  std::vector<int64_t> axes_dim = {16, 56, 56};  // rotated elements of a head for each of the three positions
  double theta = 10000;
  bool qkv_bias = true;
  bool guidance_embed = false;  // distilled models are told how strong their guidance is to be
  double guidance = 3.5;        // what they are told
  AutoencoderArgs autoencoder;

  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t mlp_hidden() const { return static_cast<int64_t>(static_cast<double>(hidden_size) * mlp_ratio); }
  int64_t blocks() const { return depth + depth_single_blocks; }
};

const std::map<std::string, Args>& flavors();

// The arguments as JSON, for the log.
std::string describe(const Args& args);

// Sizes from the config.json of a transformer in diffusers' format. Throws UsageError with a sentence for every key
// that is missing, has a wrong type or contradicts another.
Args args_from_config_json(const std::filesystem::path& file);
// Sizes of its autoencoder from the config.json of an AutoencoderKL in diffusers' format, where a shift_factor that is
// null or not given means no shift; throws likewise.
AutoencoderArgs autoencoder_from_config_json(const std::filesystem::path& file);
// The other way round, of the transformer.
std::string to_config_json(const Args& args);

}  // namespace titanium::models::flux
