// DeepSeek sizes out of Hugging Face's config.json, and into it.
#include "titanium/base/error.h"
#include "titanium/models/deepseek_v3/args.h"

namespace titanium::models::deepseek_v3 {
namespace {

constexpr double kLatentNormEps = 1e-6;  // transformers has it whatever config.json says of the other norms

const FieldKeys& expert_keys() {
  static const FieldKeys keys = {
      {"num_experts", {"n_routed_experts", "num_local_experts", "num_experts"}},
      {"num_shared_experts", {"n_shared_experts"}, /*required=*/false},
      {"top_k", {"num_experts_per_tok"}},
      {"moe_hidden_dim", {"moe_intermediate_size"}},
      {"route_scale", {"routed_scaling_factor"}, /*required=*/false},
      {"route_norm", {"norm_topk_prob"}, /*required=*/false},
      {"score_func", {"scoring_func"}, /*required=*/false},
  };
  return keys;
}

void read_choice_of_v3(const JsonReader& config, decoder::MoeArgs& moe) {
  if (config.text_or("topk_method", "noaux_tc") != "noaux_tc") config.fail("topk_method", "\"noaux_tc\"");
  if (moe.score_func != "sigmoid") config.fail("scoring_func", "\"sigmoid\"");
  const int64_t groups = config.size_or("n_group", 8);
  if (groups == 1) return;
  moe.num_expert_groups = groups;
  moe.num_limited_groups = config.size_or("topk_group", 4);
}

void check_choice_of_v2(const JsonReader& config, const decoder::MoeArgs& moe) {
  if (config.text_or("topk_method", "greedy") != "greedy") {
    config.fail("topk_method",
                "\"greedy\": groups are chosen by their best expert there, which no model of this build does");
  }
  if (moe.score_func != "softmax") config.fail("scoring_func", "\"softmax\"");
  if (moe.route_norm) config.fail("norm_topk_prob", "false");
}

decoder::MoeArgs read_experts(const JsonReader& config, bool v3) {
  if (config.size_or("moe_layer_freq", 1) != 1) {
    config.fail("moe_layer_freq", "1: all layers after the first ones have experts");
  }
  decoder::MoeArgs moe;
  moe.num_shared_experts = v3 ? 1 : 2;
  moe.score_func = v3 ? "sigmoid" : "softmax";
  moe.route_norm = v3;
  moe.route_scale = v3 ? 2.5 : 1;
  moe.score_before_experts = false;
  read_config_json(config, moe, decoder::moe_fields(), expert_keys());
  v3 ? read_choice_of_v3(config, moe) : check_choice_of_v2(config, moe);
  return moe;
}

nlohmann::ordered_json frame(const Args& args, Dtype dtype) {
  if (is_v3(args)) return decoder::config_json_frame("DeepseekV3ForCausalLM", "deepseek_v3", dtype);
  if (args.moe.num_expert_groups == 0 && !args.moe.route_norm) {
    return decoder::config_json_frame("DeepseekV2ForCausalLM", "deepseek_v2", dtype);
  }
  throw UsageError(
      "this model has no form at Hugging Face: experts that are chosen by softmax have groups that are found by their "
      "best two, or normalised scores. Use a distributed checkpoint.");
}

}  // namespace

const ArgFields<Args>& fields() {
  static const ArgFields<Args> fields = {
      field<Args>("dim", &Args::dim, "hidden_size"),
      field<Args>("n_layers", &Args::n_layers, "num_hidden_layers", nullptr, /*largest=*/4096),
      field<Args>("n_heads", &Args::n_heads, "num_attention_heads"),
      field<Args>("inter_dim", &Args::inter_dim, "intermediate_size"),
      logged_field<Args>("n_dense_layers", [](const Args& a) { return a.n_dense_layers; }),
      logged_field<Args>("moe", [](const Args& a) { return json_of(a.moe, decoder::moe_fields()); }),
      field<Args>("q_lora_rank", &Args::q_lora_rank, "q_lora_rank", [](const Args&) { return int64_t{0}; }),
      field<Args>("kv_lora_rank", &Args::kv_lora_rank, "kv_lora_rank"),
      field<Args>("qk_nope_head_dim", &Args::qk_nope_head_dim, "qk_nope_head_dim"),
      field<Args>("qk_rope_head_dim", &Args::qk_rope_head_dim, "qk_rope_head_dim"),
      field<Args>("v_head_dim", &Args::v_head_dim, "v_head_dim"),
      field<Args>("vocab_size", &Args::vocab_size, "vocab_size"),
      field<Args>("norm_eps", &Args::norm_eps, "rms_norm_eps", [](const Args&) { return 1e-6; }),
      field<Args>("latent_norm_eps", &Args::latent_norm_eps),
      field<Args>("rope_theta", &Args::rope_theta),
      logged_field<Args>("yarn", [](const Args& a) { return decoder::yarn_json(a.yarn); }),
      field<Args>(
          "max_seq_len", &Args::max_seq_len, "max_position_embeddings", [](const Args&) { return int64_t{4096}; },
          kLongestSequence),
      field<Args>("tied_embeddings", &Args::tied_embeddings, "tie_word_embeddings", [](const Args&) { return false; }),
      field<Args>("attn_type", &Args::attn_type),
      field<Args>("attn_mask_type", &Args::attn_mask_type),
  };
  return fields;
}

Args args_from_config_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "Hugging Face's config.json of a DeepSeek V3");
  const JsonReader config(file.string(), json);
  const bool v3 = config.text_or("model_type", "deepseek_v3") != "deepseek_v2";
  decoder::check_config_json(config, v3 ? "deepseek_v3" : "deepseek_v2", "DeepSeek");
  if (!config.flag_or("rope_interleave", true)) config.fail("rope_interleave", "true: adjacent elements are rotated");
  Args args;
  read_config_json(config, args, fields());
  if (config.size_or("num_key_value_heads", args.n_heads) != args.n_heads) {
    config.fail("num_key_value_heads", "num_attention_heads");
  }
  if (args.qk_rope_head_dim % 2 != 0) config.fail("qk_rope_head_dim", "even");
  args.n_dense_layers = config.count_or("first_k_dense_replace", v3 ? 3 : 0);
  args.latent_norm_eps = kLatentNormEps;
  args.moe = read_experts(config, v3);
  decoder::check_moe(args.moe, file.string());
  const decoder::RopeOptions rope = decoder::read_yarn(config, /*default_theta=*/10000);
  args.rope_theta = rope.theta;
  args.yarn = rope.yarn;
  return args;
}

std::string to_config_json(const Args& args, Dtype dtype) {
  nlohmann::ordered_json json = frame(args, dtype);
  add_to_config_json(json, args, fields());
  if (args.q_lora_rank == 0) json["q_lora_rank"] = nullptr;
  json["num_key_value_heads"] = args.n_heads;
  json["first_k_dense_replace"] = args.n_dense_layers;
  json["moe_layer_freq"] = 1;
  add_to_config_json(json, args.moe, decoder::moe_fields(), expert_keys());
  json["topk_method"] = is_v3(args) ? "noaux_tc" : "greedy";
  json["n_group"] = std::max<int64_t>(args.moe.num_expert_groups, 1);
  json["topk_group"] = std::max<int64_t>(args.moe.num_limited_groups, 1);
  json["num_nextn_predict_layers"] = 0;
  json["rope_theta"] = args.rope_theta;
  json["rope_scaling"] = decoder::yarn_json(args.yarn);
  return json.dump(2);
}

}  // namespace titanium::models::deepseek_v3
