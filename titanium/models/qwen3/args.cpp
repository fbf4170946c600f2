#include "titanium/models/qwen3/args.h"

namespace titanium::models::qwen3 {
namespace {

struct Sizes {
  int64_t dim, layers, heads, feed_forward;
  bool tied;
};

Args qwen3(const Sizes& sizes) {
  Args args;
  args.dim = sizes.dim;
  args.n_layers = sizes.layers;
  args.n_heads = sizes.heads;
  args.n_kv_heads = 8;
  args.head_dim = 128;
  args.ffn_hidden_dim = sizes.feed_forward;
  args.vocab_size = 151936;
  args.norm_eps = 1e-6;
  args.rope_theta = 1e6;
  args.max_seq_len = 40960;
  args.tied_embeddings = sizes.tied;
  return args;
}

Args debug() {
  Args args = qwen3({256, 8, 16, 3072, true});
  args.vocab_size = 2048;
  args.max_seq_len = 4096;
  return args;
}

}  // namespace

const std::map<std::string, Args>& flavors() {
  static const std::map<std::string, Args> flavors = {
      {"debugmodel", debug()},
      {"0.6B", qwen3({1024, 28, 16, 3072, true})},
      {"1.7B", qwen3({2048, 28, 16, 6144, true})},
      {"4B", qwen3({2560, 36, 32, 9728, true})},
      {"8B", qwen3({4096, 36, 32, 12288, false})},
      {"14B", qwen3({5120, 40, 40, 17408, false})},
      {"32B", qwen3({5120, 64, 64, 25600, false})},
  };
  return flavors;
}

const ArgFields<Args>& fields() {
  static const ArgFields<Args> fields = decoder::dense_fields<Args>(
      /*head_dim=*/[](const Args&) { return int64_t{128}; }, /*norm_eps=*/1e-6, /*max_seq_len=*/32768);
  return fields;
}

Args args_from_config_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "Hugging Face's config.json of a Qwen 3");
  const JsonReader config(file.string(), json);
  decoder::check_config_json(config, "qwen3", "Qwen 3");
  if (config.flag_or("use_sliding_window", false))
    config.fail("use_sliding_window", "false: windows are not available");
  Args args;
  read_config_json(config, args, fields());
  decoder::check_heads(config, args);
  decoder::read_rope(config, args, /*default_theta=*/10000);
  return args;
}

std::string to_config_json(const Args& args, Dtype dtype) {
  nlohmann::ordered_json json = decoder::config_json_frame("Qwen3ForCausalLM", "qwen3", dtype);
  add_to_config_json(json, args, fields());
  json["rope_theta"] = args.rope_theta;
  json["rope_scaling"] = decoder::rope_scaling_json(args.rope_scaling);
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = args.n_layers;
  return json.dump(2);
}

}  // namespace titanium::models::qwen3
