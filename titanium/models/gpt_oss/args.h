// Sizes of GPT-OSS models.
#pragma once

#include <filesystem>
#include <map>

#include "titanium/models/decoder/args.h"
#include "titanium/models/decoder/moe_args.h"
#include "titanium/models/decoder/yarn_args.h"

namespace titanium::models::gpt_oss {

struct Args : decoder::Args, decoder::HeadArgs {
  decoder::MoeArgs moe;
  int64_t sliding_window_size = 128;  // in layers 0, 2, 4 and so on
  std::optional<decoder::YarnArgs> yarn;
};

// All fields, with Hugging Face's keys.
const ArgFields<Args>& fields();

// The table of reference sizes, by flavor.
const std::map<std::string, Args>& flavors();

// Whether a token of this layer sees only those of its window.
bool has_window(int64_t layer);

// Sizes from a Hugging Face config.json of a GPT-OSS. Throws UsageError with a sentence for every key that is missing,
// has a wrong type, contradicts another or asks for what this model is not.
Args args_from_config_json(const std::filesystem::path& file);
// The other way round, for weights in `dtype`: what transformers needs to build the same model.
std::string to_config_json(const Args& args, Dtype dtype);

}  // namespace titanium::models::gpt_oss
