#include "titanium/models/decoder/args.h"

#include "titanium/base/error.h"
#include "titanium/base/log.h"

namespace titanium::models::decoder {

void apply_options(Args& args, const config::Model& options, std::optional<int64_t> max_seq_len) {
  if (max_seq_len && *max_seq_len > args.max_seq_len) {
    log_warning("training.seq_len = {} is longer than the {} positions that {} {} was made for", *max_seq_len,
                args.max_seq_len, options.name, options.flavor);
  }
  args.max_seq_len = max_seq_len.value_or(args.max_seq_len);
  args.attn_type = options.attn_type.value_or(args.attn_type);
  // flex and varlen are torchtitan's names for attention inside documents; the path is chosen by device and dtype.
  const std::string mask =
      options.attn_type ? (args.attn_type == "sdpa" ? "causal" : "block_causal") : args.attn_mask_type;
  args.attn_mask_type = options.attn_mask_type.value_or(mask);
  if (args.attn_type == "sdpa" && attends_inside_documents(args)) {
    throw UsageError(
        "model.attn_mask_type = \"block_causal\" needs model.attn_type = \"flex\" or \"varlen\", not \"sdpa\".");
  }
}

bool attends_inside_documents(const Args& args) { return args.attn_mask_type == "block_causal"; }

void read_rope(const JsonReader& config, Args& args, double default_theta) {
  const bool together = config.has("rope_parameters");
  const double theta = config.positive_or("rope_theta", default_theta);
  args.rope_theta = together ? config.object("rope_parameters").positive_or("rope_theta", theta) : theta;
  const char* key = together ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) return;
  const JsonReader scaling = config.object(key);
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (type == "default") return;
  if (type != "llama3") scaling.fail(scaling.has("rope_type") ? "rope_type" : "type", "\"llama3\" or \"default\"");
  args.rope_scaling = ops::RopeScaling{scaling.positive("factor"), scaling.positive("low_freq_factor"),
                                       scaling.positive("high_freq_factor"),
                                       scaling.size("original_max_position_embeddings", kLongestSequence)};
  if (args.rope_scaling->high_frequency_factor < args.rope_scaling->low_frequency_factor) {
    scaling.fail("high_freq_factor", "not smaller than low_freq_factor");
  }
}

nlohmann::ordered_json rope_scaling_json(const std::optional<ops::RopeScaling>& scaling) {
  if (!scaling) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", scaling->factor},
          {"low_freq_factor", scaling->low_frequency_factor},
          {"high_freq_factor", scaling->high_frequency_factor},
          {"original_max_position_embeddings", scaling->original_max_position}};
}

void check_heads(const JsonReader& config, const HeadArgs& args) {
  if (args.n_heads % args.n_kv_heads != 0) config.fail("num_key_value_heads", "a divisor of num_attention_heads");
  if (args.head_dim % 2 != 0 || args.head_dim < 2)
    config.fail("head_dim", "even (without it, hidden_size / num_attention_heads counts)");
}

void check_config_json(const JsonReader& config, const std::string& model_type, const std::string& family) {
  if (config.text_or("model_type", model_type) != model_type) config.fail("model_type", '"' + model_type + '"');
  if (config.text_or("hidden_act", "silu") != "silu") config.fail("hidden_act", "\"silu\"");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (config.flag_or(key, false)) config.fail(key, "false: " + family + " has no biases");
  }
}

nlohmann::ordered_json config_json_frame(const std::string& architecture, const std::string& model_type, Dtype dtype) {
  return {{"architectures", {architecture}},  {"model_type", model_type}, {"hidden_act", "silu"},
          {"attention_bias", false},          {"attention_dropout", 0.0}, {"initializer_range", 0.02},
          {"torch_dtype", dtype_name(dtype)}, {"use_cache", true}};
}

}  // namespace titanium::models::decoder
