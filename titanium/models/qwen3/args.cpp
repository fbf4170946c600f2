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

struct Experts {
  int64_t count, hidden_dim;
};

decoder::MoeArgs eight_of(const Experts& experts) {
  decoder::MoeArgs moe;
  moe.num_experts = experts.count;
  moe.num_shared_experts = 0;
  moe.top_k = 8;
  moe.moe_hidden_dim = experts.hidden_dim;
  moe.score_func = "softmax";
  moe.route_norm = true;
  moe.score_before_experts = false;
  return moe;
}

Args debug_with_experts() {
  Args args = debug();
  args.tied_embeddings = false;
  args.moe = eight_of({64, 768});
  return args;
}

Args with_experts(const Sizes& sizes, const Experts& experts) {
  Args args = qwen3(sizes);
  args.n_kv_heads = 4;
  args.moe = eight_of(experts);
  return args;
}

Args qwen3_30b_a3b() {
  Args args = with_experts({2048, 48, 32, 6144, false}, {128, 768});
  args.max_seq_len = 262144;
  return args;
}

Args qwen3_235b_a22b() {
  Args args = with_experts({4096, 94, 64, 12288, false}, {128, 1536});
  args.rope_theta = 5e6;
  return args;
}

const FieldKeys& expert_keys() {
  static const FieldKeys keys = {
      {"num_experts", {"num_experts", "num_local_experts"}},  // transformers 5 writes the second
      {"top_k", {"num_experts_per_tok"}},
      {"moe_hidden_dim", {"moe_intermediate_size"}},
      {"route_norm", {"norm_topk_prob"}, /*required=*/false},
  };
  return keys;
}

// Experts out of config.json of a qwen3_moe.
decoder::MoeArgs read_experts(const JsonReader& config) {
  if (config.size_or("decoder_sparse_step", 1) != 1) {
    config.fail("decoder_sparse_step", "1: all layers have experts, or none");
  }
  if (config.has("mlp_only_layers") && !config.numbers("mlp_only_layers").empty()) {
    config.fail("mlp_only_layers", "empty: all layers have experts, or none");
  }
  decoder::MoeArgs moe = eight_of({0, 0});
  moe.route_norm = false;
  read_config_json(config, moe, decoder::moe_fields(), expert_keys());
  return moe;
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
      {"debugmodel_moe", debug_with_experts()},
      {"30B-A3B", qwen3_30b_a3b()},
      {"235B-A22B", qwen3_235b_a22b()},
  };
  return flavors;
}

const ArgFields<Args>& fields() {
  static const ArgFields<Args> fields = [] {
    auto fields = decoder::dense_fields<Args>(
        /*head_dim=*/[](const Args&) { return int64_t{128}; }, /*norm_eps=*/1e-6, /*max_seq_len=*/32768);
    fields.push_back(logged_field<Args>(
        "moe", [](const Args& a) { return a.moe ? json_of(*a.moe, decoder::moe_fields()) : nullptr; }));
    return fields;
  }();
  return fields;
}

Args args_from_config_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "Hugging Face's config.json of a Qwen 3");
  const JsonReader config(file.string(), json);
  const bool has_experts = config.text_or("model_type", "qwen3") == "qwen3_moe";
  decoder::check_config_json(config, has_experts ? "qwen3_moe" : "qwen3", "Qwen 3");
  if (config.flag_or("use_sliding_window", false))
    config.fail("use_sliding_window", "false: windows are not available");
  Args args;
  read_config_json(config, args, fields());
  if (has_experts) {
    if (!config.has("head_dim")) args.head_dim = args.dim / args.n_heads;
    args.moe = read_experts(config);
    decoder::check_moe(*args.moe, file.string());
  }
  decoder::check_heads(config, args);
  decoder::read_rope(config, args, /*default_theta=*/10000);
  return args;
}

std::string to_config_json(const Args& args, Dtype dtype) {
  nlohmann::ordered_json json = args.moe ? decoder::config_json_frame("Qwen3MoeForCausalLM", "qwen3_moe", dtype)
                                         : decoder::config_json_frame("Qwen3ForCausalLM", "qwen3", dtype);
  add_to_config_json(json, args, fields());
  json["rope_theta"] = args.rope_theta;
  json["rope_scaling"] = decoder::rope_scaling_json(args.rope_scaling);
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = args.n_layers;
  if (args.moe) {
    add_to_config_json(json, *args.moe, decoder::moe_fields(), expert_keys());
    json["decoder_sparse_step"] = 1;
    json["mlp_only_layers"] = nlohmann::ordered_json::array();
    json["output_router_logits"] = false;
  }
  return json.dump(2);
}

}  // namespace titanium::models::qwen3
