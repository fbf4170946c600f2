#include "titanium/models/llama3/state_dict_adapter.h"

#include "titanium/base/error.h"
#include "titanium/models/llama3/model.h"

namespace titanium::models::llama3 {
namespace {

const std::map<std::string, std::string, std::less<>> kOutside = {
    {"tok_embeddings.weight", "model.embed_tokens.weight"},
    {"norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

const std::map<std::string, std::string, std::less<>> kInsideBlock = {
    {"attention.wq.weight", "self_attn.q_proj.weight"},     {"attention.wk.weight", "self_attn.k_proj.weight"},
    {"attention.wv.weight", "self_attn.v_proj.weight"},     {"attention.wo.weight", "self_attn.o_proj.weight"},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight"},     {"feed_forward.w2.weight", "mlp.down_proj.weight"},
    {"feed_forward.w3.weight", "mlp.up_proj.weight"},       {"attention_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
};

}  // namespace

std::string hugging_face_name(const std::string& fqn) {
  if (const auto found = kOutside.find(fqn); found != kOutside.end()) return found->second;
  const size_t end_of_number = fqn.find('.', std::string_view("layers.").size());
  TI_ASSERT(fqn.starts_with("layers.") && end_of_number != std::string::npos, "{} is not a parameter of Llama", fqn);
  return fmt::format("model.{}.{}", fqn.substr(0, end_of_number), kInsideBlock.at(fqn.substr(end_of_number + 1)));
}

HuggingFaceTensor Llama3::hugging_face_tensor(const std::string& fqn) const {
  // Hugging Face rotates the halves of a head, we rotate adjacent pairs.
  const bool rotated = fqn.ends_with(".wq.weight") || fqn.ends_with(".wk.weight");
  return {.name = hugging_face_name(fqn),
          .head_rows = rotated ? args_.head_dim : 0,
          .stand_in = fqn == "output.weight" ? "model.embed_tokens.weight" : ""};
}

bool Llama3::is_redundant(const std::string& name) const {
  if (name == "rope.freqs" || name == "freqs_cis" || name.ends_with("rotary_emb.inv_freq")) return true;
  return args_.tied_embeddings && (name == "output.weight" || name == "lm_head.weight");
}

}  // namespace titanium::models::llama3
