// Sizes of Llama 2 and 3 models.
#pragma once

#include <filesystem>
#include <map>

#include "titanium/models/decoder/args.h"

namespace titanium::models::llama3 {

struct Args : decoder::Args, decoder::HeadArgs {
  int64_t ffn_hidden_dim = 11008;
};

// All fields, with Hugging Face's keys.
const ArgFields<Args>& fields();

// The tables of reference sizes, by flavor.
const std::map<std::string, Args>& llama3_flavors();
const std::map<std::string, Args>& llama2_flavors();

// Sizes from a Hugging Face config.json of a Llama, in both spellings of the rope options. Throws UsageError with a
// sentence for every key that is missing, has a wrong type, contradicts another or asks for what this model is not.
Args args_from_config_json(const std::filesystem::path& file);
// The other way round, for weights in `dtype`: what transformers needs to build the same model.
std::string to_config_json(const Args& args, Dtype dtype);

// Sizes from the params.json of a folder of Meta's; a vocabulary that it leaves open is that of the weights beside it.
// Throws UsageError as above.
Args args_from_params_json(const std::filesystem::path& file);

// The width of a feed-forward layer: 2/3 of 4 * dim, scaled, rounded up.
int64_t ffn_hidden_dim(int64_t dim, double multiplier, int64_t multiple_of);

}  // namespace titanium::models::llama3
