// Llama 4 sizes out of Hugging Face's config.json, and into it.
#include "titanium/models/llama4/args.h"

namespace titanium::models::llama4 {
namespace {

constexpr const char* kChunks = "chunked_attention";
constexpr const char* kFull = "full_attention";

// Layers without rope: those with a 0 in no_rope_layers, or each fourth one.
std::vector<int64_t> read_no_rope_layers(const JsonReader& config, int64_t layers) {
  std::vector<int64_t> rope(static_cast<size_t>(layers));
  const int64_t interval = config.size_or("no_rope_layer_interval", 4);
  for (int64_t layer = 0; layer < layers; ++layer) rope[static_cast<size_t>(layer)] = (layer + 1) % interval != 0;
  if (config.has("no_rope_layers")) {
    const std::vector<int64_t> given = config.numbers("no_rope_layers");
    const bool fits =
        given.size() >= rope.size() && std::ranges::all_of(given, [](int64_t flag) { return flag == 0 || flag == 1; });
    if (!given.empty() && !fits) config.fail("no_rope_layers", "a 0 or 1 for each of the layers");
    if (!given.empty()) rope = given;
  }
  std::vector<int64_t> without;
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (rope[static_cast<size_t>(layer)] == 0) without.push_back(layer);
  }
  return without;
}

// Chunks are where rope is, or nowhere.
int64_t read_chunk(const JsonReader& config, const Args& args) {
  const int64_t chunk = config.size_or("attention_chunk_size", 8192);
  if (!config.has("layer_types")) return chunk;
  const std::vector<std::string> types = config.texts("layer_types");
  if (std::ranges::all_of(types, [](const std::string& type) { return type == kFull; })) return 0;
  bool fits = static_cast<int64_t>(types.size()) >= args.n_layers;
  for (int64_t layer = 0; fits && layer < args.n_layers; ++layer) {
    fits = types[static_cast<size_t>(layer)] == (has_rope(args, layer) ? kChunks : kFull);
  }
  if (!fits) config.fail("layer_types", "\"chunked_attention\" where no_rope_layers has a 1, else \"full_attention\"");
  return chunk;
}

const FieldKeys& expert_keys() {
  static const FieldKeys keys = {
      {"moe_hidden_dim", {"intermediate_size"}},
      {"num_experts", {"num_local_experts", "num_experts"}},
      {"top_k", {"num_experts_per_tok"}, /*required=*/false},
  };
  return keys;
}

void check_moe_layers(const JsonReader& config, const Args& args) {
  if (!config.has("moe_layers")) return;
  std::vector<int64_t> expected;
  for (int64_t layer = 0; layer < args.n_layers; ++layer) {
    if (has_experts(args, layer)) expected.push_back(layer);
  }
  if (config.numbers("moe_layers") != expected) {
    config.fail("moe_layers",
                fmt::format("each layer that interleave_moe_layer_step = {} gives", args.interleave_moe_layer_step));
  }
}

// Early folders have a number.
bool read_temperature_tuning(const JsonReader& config, const nlohmann::json& json) {
  const char* key = "attn_temperature_tuning";
  if (config.has(key) && json[key].is_number()) return json[key] != 0;
  return config.flag_or(key, true);
}

Args read_text_config(const JsonReader& config, const nlohmann::json& json, const std::string& place) {
  if (config.text_or("model_type", "llama4_text") != "llama4_text") {
    config.fail("model_type", "\"llama4_text\", or \"llama4\" with text_config");
  }
  decoder::check_config_json(config, "llama4_text", "Llama 4");
  Args args;
  read_config_json(config, args, fields());
  decoder::check_heads(config, args);
  decoder::read_rope(config, args, /*default_theta=*/500000);
  args.moe = {.top_k = 1};
  read_config_json(config, args.moe, decoder::moe_fields(), expert_keys());
  decoder::check_moe(args.moe, place);
  args.interleave_moe_layer_step = config.size_or("interleave_moe_layer_step", 1);
  check_moe_layers(config, args);
  args.no_rope_layers = read_no_rope_layers(config, args.n_layers);
  args.fixed_attn_block_size = read_chunk(config, args);
  args.use_qk_norm = config.flag_or("use_qk_norm", true);
  args.attn_temperature_tuning = read_temperature_tuning(config, json);
  args.attn_scale = config.positive_or("attn_scale", 0.1);
  args.floor_scale = config.positive_or("floor_scale", 8192);
  return args;
}

}  // namespace

const ArgFields<Args>& fields() {
  static const ArgFields<Args> fields = [] {
    auto fields = decoder::dense_fields<Args>(/*head_dim=*/[](const Args& a) { return a.dim / a.n_heads; },
                                              /*norm_eps=*/1e-5, /*max_seq_len=*/131072);
    std::ranges::find(fields, "ffn_hidden_dim", &ArgField<Args>::name)[0] = field<Args>(
        "ffn_hidden_dim", &Args::ffn_hidden_dim, "intermediate_size_mlp", [](const Args&) { return int64_t{16384}; });
    fields.push_back(logged_field<Args>("moe", [](const Args& a) { return json_of(a.moe, decoder::moe_fields()); }));
    fields.push_back(field<Args>("interleave_moe_layer_step", &Args::interleave_moe_layer_step));
    fields.push_back(logged_field<Args>("no_rope_layers", [](const Args& a) { return a.no_rope_layers; }));
    fields.push_back(field<Args>("fixed_attn_block_size", &Args::fixed_attn_block_size));
    fields.push_back(field<Args>("use_qk_norm", &Args::use_qk_norm));
    fields.push_back(field<Args>("attn_temperature_tuning", &Args::attn_temperature_tuning));
    return fields;
  }();
  return fields;
}

Args args_from_config_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "Hugging Face's config.json of a Llama 4");
  const JsonReader config(file.string(), json);
  if (!config.has("text_config")) return read_text_config(config, json, file.string());
  if (config.text_or("model_type", "llama4") != "llama4") config.fail("model_type", "\"llama4\"");
  return read_text_config(config.object("text_config"), json["text_config"], file.string());
}

std::string to_config_json(const Args& args, Dtype dtype) {
  nlohmann::ordered_json json = decoder::config_json_frame("Llama4ForCausalLM", "llama4_text", dtype);
  add_to_config_json(json, args, fields());
  json["rope_theta"] = args.rope_theta;
  json["rope_scaling"] = decoder::rope_scaling_json(args.rope_scaling);
  add_to_config_json(json, args.moe, decoder::moe_fields(), expert_keys());
  json["interleave_moe_layer_step"] = args.interleave_moe_layer_step;
  json["use_qk_norm"] = args.use_qk_norm;
  json["attn_temperature_tuning"] = args.attn_temperature_tuning;
  json["attn_scale"] = args.attn_scale;
  json["floor_scale"] = static_cast<int64_t>(args.floor_scale);
  json["attention_chunk_size"] = args.fixed_attn_block_size == 0 ? 8192 : args.fixed_attn_block_size;
  for (int64_t layer = 0; layer < args.n_layers; ++layer) {
    const bool rope = has_rope(args, layer);
    json["no_rope_layers"].push_back(rope ? 1 : 0);
    json["layer_types"].push_back(rope && args.fixed_attn_block_size > 0 ? kChunks : kFull);
  }
  json["router_jitter_noise"] = 0.0;
  json["output_router_logits"] = false;
  return json.dump(2);
}

}  // namespace titanium::models::llama4
