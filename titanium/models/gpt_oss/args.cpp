#include "titanium/models/gpt_oss/args.h"

namespace titanium::models::gpt_oss {
namespace {

constexpr const char* kWindow = "sliding_attention";
constexpr const char* kFull = "full_attention";

decoder::MoeArgs four_of(int64_t experts) {
  decoder::MoeArgs moe;
  moe.num_experts = experts;
  moe.num_shared_experts = 0;
  moe.top_k = 4;
  moe.moe_hidden_dim = 2880;
  moe.score_func = "softmax";
  moe.route_norm = true;
  moe.gate_bias = true;
  moe.score_before_experts = false;
  moe.clamped_swiglu = true;
  return moe;
}

Args gpt_oss(int64_t dim, int64_t layers, int64_t experts) {
  Args args;
  args.dim = dim;
  args.n_layers = layers;
  args.n_heads = 64;
  args.n_kv_heads = 8;
  args.head_dim = 64;
  args.vocab_size = 201088;
  args.rope_theta = 150000;
  args.yarn = decoder::YarnArgs{.factor = 32, .truncate = false};
  args.attn_type = "flex";
  args.moe = four_of(experts);
  return args;
}

// transformers 5 knows the experts under both names.
const FieldKeys& expert_keys() {
  static const FieldKeys keys = {
      {"num_experts", {"num_local_experts", "num_experts"}},   {"top_k", {"experts_per_token"}, /*required=*/false},
      {"top_k", {"num_experts_per_tok", "experts_per_token"}}, {"moe_hidden_dim", {"intermediate_size"}},
      {"swiglu_limit", {"swiglu_limit"}, /*required=*/false},
  };
  return keys;
}

const char* layer_type(int64_t layer) { return has_window(layer) ? kWindow : kFull; }

void check_layer_types(const JsonReader& config, int64_t layers) {
  if (!config.has("layer_types")) return;
  const std::vector<std::string> types = config.texts("layer_types");
  const std::string expectation =
      fmt::format("{} times \"{}\" and \"{}\" by turns, as GPT-OSS has it", layers, kWindow, kFull);
  if (static_cast<int64_t>(types.size()) != layers) config.fail("layer_types", expectation);
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (types[static_cast<size_t>(layer)] != layer_type(layer)) config.fail("layer_types", expectation);
  }
}

}  // namespace

bool has_window(int64_t layer) { return layer % 2 == 0; }

const std::map<std::string, Args>& flavors() {
  static const std::map<std::string, Args> flavors = {
      {"debugmodel", gpt_oss(256, 4, 8)},
      {"20b", gpt_oss(2880, 24, 32)},
      {"120b", gpt_oss(2880, 36, 128)},
  };
  return flavors;
}

const ArgFields<Args>& fields() {
  static const ArgFields<Args> fields = {
      field<Args>("dim", &Args::dim, "hidden_size"),
      field<Args>("n_layers", &Args::n_layers, "num_hidden_layers", nullptr, /*largest=*/4096),
      field<Args>("n_heads", &Args::n_heads, "num_attention_heads"),
      field<Args>("n_kv_heads", &Args::n_kv_heads, "num_key_value_heads", [](const Args& a) { return a.n_heads; }),
      field<Args>("head_dim", &Args::head_dim, "head_dim", [](const Args&) { return int64_t{64}; }),
      logged_field<Args>("moe", [](const Args& a) { return json_of(a.moe, decoder::moe_fields()); }),
      field<Args>("sliding_window_size", &Args::sliding_window_size, "sliding_window",
                  [](const Args&) { return int64_t{128}; }),
      field<Args>("vocab_size", &Args::vocab_size, "vocab_size"),
      field<Args>("norm_eps", &Args::norm_eps, "rms_norm_eps", [](const Args&) { return 1e-5; }),
      field<Args>("rope_theta", &Args::rope_theta),
      logged_field<Args>("yarn", [](const Args& a) { return decoder::yarn_json(a.yarn); }),
      field<Args>(
          "max_seq_len", &Args::max_seq_len, "max_position_embeddings", [](const Args&) { return int64_t{131072}; },
          kLongestSequence),
      field<Args>("tied_embeddings", &Args::tied_embeddings, "tie_word_embeddings", [](const Args&) { return false; }),
      field<Args>("attn_type", &Args::attn_type),
      field<Args>("attn_mask_type", &Args::attn_mask_type),
  };
  return fields;
}

Args args_from_config_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "Hugging Face's config.json of a GPT-OSS");
  const JsonReader config(file.string(), json);
  if (config.text_or("model_type", "gpt_oss") != "gpt_oss") config.fail("model_type", "\"gpt_oss\"");
  if (config.text_or("hidden_act", "silu") != "silu") config.fail("hidden_act", "\"silu\"");
  if (!config.flag_or("attention_bias", true)) config.fail("attention_bias", "true: GPT-OSS has biases");
  if (config.positive_or("swiglu_alpha", 1.702) != 1.702) config.fail("swiglu_alpha", "1.702");
  Args args = flavors().at("20b");
  read_config_json(config, args, fields());
  args.attn_type = "flex";
  check_layer_types(config, args.n_layers);
  args.moe.swiglu_limit = 7;
  read_config_json(config, args.moe, decoder::moe_fields(), expert_keys());
  decoder::check_moe(args.moe, file.string());
  decoder::check_heads(config, args);
  const decoder::RopeOptions rope = decoder::read_yarn(config, /*default_theta=*/150000);
  args.rope_theta = rope.theta;
  // Without a word about it the published YaRN counts, as in transformers.
  if (config.has("rope_scaling") || config.has("rope_parameters")) args.yarn = rope.yarn;
  return args;
}

std::string to_config_json(const Args& args, Dtype dtype) {
  nlohmann::ordered_json json = decoder::config_json_frame("GptOssForCausalLM", "gpt_oss", dtype);
  json["attention_bias"] = true;
  add_to_config_json(json, args, fields());
  add_to_config_json(json, args.moe, decoder::moe_fields(), expert_keys());
  json["rope_theta"] = args.rope_theta;
  json["rope_scaling"] = args.yarn ? decoder::yarn_json(args.yarn) : nlohmann::ordered_json({{"rope_type", "default"}});
  json["layer_types"] = nlohmann::ordered_json::array();
  for (int64_t layer = 0; layer < args.n_layers; ++layer) json["layer_types"].push_back(layer_type(layer));
  json["output_router_logits"] = false;
  return json.dump(2);
}

}  // namespace titanium::models::gpt_oss
