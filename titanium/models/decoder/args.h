// What all decoder-only transformers have sizes for. A family's arguments derive from these.
#pragma once

#include <optional>
#include <string>

#include "titanium/config/job_config.h"
#include "titanium/models/arg_fields.h"
#include "titanium/ops/rope.h"
#include "titanium/tensor/tensor.h"

namespace titanium::models::decoder {

struct Args {
  int64_t dim = 4096;
  int64_t n_layers = 32;
  int64_t vocab_size = 128256;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  std::optional<ops::RopeScaling> rope_scaling;
  int64_t max_seq_len = 131072;
  bool depth_init = true;
  bool tied_embeddings = false;
  std::string attn_type = "sdpa";         // sdpa, flex or varlen
  std::string attn_mask_type = "causal";  // causal or block_causal
};

// Sizes of grouped-query attention.
struct HeadArgs {
  int64_t n_heads = 32;
  int64_t n_kv_heads = 32;
  int64_t head_dim = 128;
};

// model.attn_type and model.attn_mask_type, and a length of sequences if there is one. Throws UsageError for a mask
// that the type does not have; warns of a length that the model was not made for.
void apply_options(Args& args, const config::Model& options, std::optional<int64_t> max_seq_len);

bool attends_inside_documents(const Args& args);

// Rope options out of config.json, in both spellings: `rope_theta` and `rope_scaling` of published folders, or
// everything in `rope_parameters` (transformers 5).
void read_rope(const JsonReader& config, Args& args, double default_theta);
// `rope_scaling` in the published spelling, which every transformers reads; null without scaling.
nlohmann::ordered_json rope_scaling_json(const std::optional<ops::RopeScaling>& scaling);

// Throws UsageError if config.json's sizes of heads contradict each other.
void check_heads(const JsonReader& config, const HeadArgs& args);
// Throws UsageError if config.json is not of this model_type, or asks for what no decoder here has: another activation
// than silu, biases.
void check_config_json(const JsonReader& config, const std::string& model_type, const std::string& family);

// What every config.json says of a decoder beside its sizes.
nlohmann::ordered_json config_json_frame(const std::string& architecture, const std::string& model_type, Dtype dtype);

// The fields of a family whose blocks are grouped-query attention and a feed-forward layer of one width, in the order
// of the log line. `Args` has those of decoder::Args and HeadArgs, and ffn_hidden_dim. A config.json without head_dim
// means `head_dim`.
template <typename Args>
ArgFields<Args> dense_fields(const std::function<int64_t(const Args&)>& head_dim, double norm_eps,
                             int64_t max_seq_len) {
  return {
      field<Args>("dim", &Args::dim, "hidden_size"),
      field<Args>("n_layers", &Args::n_layers, "num_hidden_layers", nullptr, /*largest=*/4096),
      field<Args>("n_heads", &Args::n_heads, "num_attention_heads"),
      field<Args>("n_kv_heads", &Args::n_kv_heads, "num_key_value_heads", [](const Args& a) { return a.n_heads; }),
      field<Args>("head_dim", &Args::head_dim, "head_dim", head_dim),
      field<Args>("ffn_hidden_dim", &Args::ffn_hidden_dim, "intermediate_size"),
      field<Args>("vocab_size", &Args::vocab_size, "vocab_size"),
      field<Args>("norm_eps", &Args::norm_eps, "rms_norm_eps", [norm_eps](const Args&) { return norm_eps; }),
      field<Args>("rope_theta", &Args::rope_theta),
      logged_field<Args>("rope_scaling", [](const Args& a) { return rope_scaling_json(a.rope_scaling); }),
      field<Args>(
          "max_seq_len", &Args::max_seq_len, "max_position_embeddings",
          [max_seq_len](const Args&) { return max_seq_len; }, kLongestSequence),
      field<Args>("tied_embeddings", &Args::tied_embeddings, "tie_word_embeddings", [](const Args&) { return false; }),
      field<Args>("attn_type", &Args::attn_type),
      field<Args>("attn_mask_type", &Args::attn_mask_type),
  };
}

}  // namespace titanium::models::decoder
