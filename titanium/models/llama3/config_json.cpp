// Llama sizes out of Hugging Face's config.json and Meta's params.json, and into the former.
#include "titanium/base/error.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/models/llama3/args.h"

namespace titanium::models::llama3 {

Args args_from_config_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "Hugging Face's config.json of a Llama");
  const JsonReader config(file.string(), json);
  decoder::check_config_json(config, "llama", "Llama");
  if (!config.has("head_dim") && config.size("hidden_size") % config.size("num_attention_heads") != 0) {
    config.fail("hidden_size", "a multiple of num_attention_heads, or head_dim given");
  }
  Args args;
  read_config_json(config, args, fields());
  decoder::check_heads(config, args);
  decoder::read_rope(config, args, /*default_theta=*/10000);
  return args;
}

Args args_from_params_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "params.json of Meta's Llama");
  const JsonReader params(file.string(), json);
  const bool scaled = params.flag_or("use_scaled_rope", false);
  Args args;
  args.dim = params.size("dim");
  args.n_layers = params.size("n_layers", /*largest=*/4096);
  args.n_heads = params.size("n_heads");
  args.n_kv_heads = params.size_or("n_kv_heads", args.n_heads);
  args.head_dim = params.size_or("head_dim", args.dim / args.n_heads);
  args.ffn_hidden_dim =
      ffn_hidden_dim(args.dim, params.positive_or("ffn_dim_multiplier", 1.0), params.size("multiple_of"));
  args.norm_eps = params.positive_or("norm_eps", 1e-5);
  args.rope_theta = params.positive_or("rope_theta", 10000);
  if (scaled) args.rope_scaling = ops::RopeScaling{};
  // The file does not say: 4096 positions are Llama 2's, 8192 Llama 3's, 131072 Llama 3.1's.
  args.max_seq_len = params.size_or("max_seq_len", scaled ? 131072 : args.rope_theta > 10000 ? 8192 : 4096);
  if (args.n_heads % args.n_kv_heads != 0) params.fail("n_kv_heads", "a divisor of n_heads");
  if (args.head_dim % 2 != 0 || args.head_dim < 2) params.fail("dim", "an even multiple of n_heads");
  const bool open = !params.has("vocab_size") || json["vocab_size"] == -1;
  args.vocab_size = open ? checkpoint::open_weights(file.parent_path())->tensor("output.weight").shape.at(0)
                         : params.size("vocab_size");
  return args;
}

std::string to_config_json(const Args& args, Dtype dtype) {
  nlohmann::ordered_json json = decoder::config_json_frame("LlamaForCausalLM", "llama", dtype);
  json["mlp_bias"] = false;
  add_to_config_json(json, args, fields());
  json["rope_theta"] = args.rope_theta;
  json["rope_scaling"] = decoder::rope_scaling_json(args.rope_scaling);
  return json.dump(2);
}

}  // namespace titanium::models::llama3
