// Sizes of Qwen 3 models, with and without experts.
#pragma once

#include <filesystem>
#include <map>

#include "titanium/models/decoder/args.h"
#include "titanium/models/decoder/moe_args.h"

namespace titanium::models::qwen3 {

struct Args : decoder::Args, decoder::HeadArgs {
  int64_t ffn_hidden_dim = 3072;        // without experts
  std::optional<decoder::MoeArgs> moe;  // in every layer, or in none
};

// All fields, with Hugging Face's keys.
const ArgFields<Args>& fields();

// The table of reference sizes, by flavor.
const std::map<std::string, Args>& flavors();

// Sizes from a Hugging Face config.json of a Qwen 3 (qwen3, qwen3_moe), in both spellings of the rope options. Throws
// UsageError with a sentence for every key that is missing, has a wrong type, contradicts another or asks for what this
// model is not.
Args args_from_config_json(const std::filesystem::path& file);
// The other way round, for weights in `dtype`: what transformers needs to build the same model.
std::string to_config_json(const Args& args, Dtype dtype);

}  // namespace titanium::models::qwen3
