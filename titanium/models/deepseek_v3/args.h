// Sizes of DeepSeek V2 and V3 models.
#pragma once

#include <filesystem>
#include <map>

#include "titanium/models/decoder/args.h"
#include "titanium/models/decoder/latent_attention.h"
#include "titanium/models/decoder/moe_args.h"
#include "titanium/models/decoder/yarn_args.h"

namespace titanium::models::deepseek_v3 {

struct Args : decoder::Args, decoder::LatentArgs {
  int64_t inter_dim = 10944;   // of the feed-forward layers without experts
  int64_t n_dense_layers = 1;  // the first ones, which have no experts
  decoder::MoeArgs moe;
  std::optional<decoder::YarnArgs> yarn;
};

// All fields, with Hugging Face's keys.
const ArgFields<Args>& fields();

// The table of reference sizes, by flavor.
const std::map<std::string, Args>& flavors();

// Sizes from a Hugging Face config.json of a DeepSeek V3 (deepseek_v3), or of a DeepSeek V2 whose experts are chosen
// without groups (deepseek_v2). Throws UsageError with a sentence for every key that is missing, has a wrong type,
// contradicts another or asks for what this model is not.
Args args_from_config_json(const std::filesystem::path& file);
// The other way round, for weights in `dtype`: what transformers needs to build the same model, which is a DeepSeek V3
// where scores are sigmoids. Throws UsageError for sizes that no model there has.
std::string to_config_json(const Args& args, Dtype dtype);
// Whether there is a place for the bias that balances experts at Hugging Face: in DeepSeek V3 alone.
bool is_v3(const Args& args);

}  // namespace titanium::models::deepseek_v3
