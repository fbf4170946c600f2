// Sizes of Llama 4 text models.
#pragma once

#include <filesystem>
#include <map>

#include "titanium/models/decoder/args.h"
#include "titanium/models/decoder/moe_args.h"

namespace titanium::models::llama4 {

struct Args : decoder::Args, decoder::HeadArgs {
  int64_t ffn_hidden_dim = 16384;  // of layers without experts
  decoder::MoeArgs moe;
  int64_t interleave_moe_layer_step = 2;  // layers step - 1, 2 step - 1, ... have experts
  // iRoPE: layers that do not rotate, in ascending order; they see everything, the others only their chunk.
  std::vector<int64_t> no_rope_layers;
  int64_t fixed_attn_block_size = 0;  // of chunks; 0: there are none
  bool use_qk_norm = false;           // queries and keys of layers with rope are normalised after it, without weights
  // Queries of layers without rope grow with their position: 1 + attn_scale * ln(1 + floor((position + 1) /
  // floor_scale)).
  bool attn_temperature_tuning = false;
  double attn_scale = 0.1;
  double floor_scale = 8192;
};

bool has_experts(const Args& args, int64_t layer);
bool has_rope(const Args& args, int64_t layer);

// All fields, with Hugging Face's keys.
const ArgFields<Args>& fields();

// The table of reference sizes, by flavor.
const std::map<std::string, Args>& flavors();

// Sizes from a Hugging Face config.json of a Llama 4: of its text model (llama4_text), or of the whole model (llama4),
// whose text_config counts. Throws UsageError with a sentence for every key that is missing, has a wrong type,
// contradicts another or asks for what this model is not.
Args args_from_config_json(const std::filesystem::path& file);
// The other way round, for weights in `dtype`: what transformers needs to build the same text model.
std::string to_config_json(const Args& args, Dtype dtype);

}  // namespace titanium::models::llama4
