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

// Turns [heads, a, b, in] into [heads, b, a, in].
Tensor swap_inside_heads(const Tensor& weight, int64_t heads, int64_t a, int64_t b) {
  return weight.view({heads, a, b, weight.size(1)}).transpose(1, 2).reshape(weight.sizes());
}

}  // namespace

std::string hugging_face_name(const std::string& fqn) {
  if (const auto found = kOutside.find(fqn); found != kOutside.end()) return found->second;
  const size_t end_of_number = fqn.find('.', std::string_view("layers.").size());
  TI_ASSERT(fqn.starts_with("layers.") && end_of_number != std::string::npos, "{} is not a parameter of Llama", fqn);
  return fmt::format("model.{}.{}", fqn.substr(0, end_of_number), kInsideBlock.at(fqn.substr(end_of_number + 1)));
}

Tensor rows_from_hugging_face(const Tensor& weight, int64_t heads) {
  return swap_inside_heads(weight, heads, 2, weight.size(0) / heads / 2);
}

Tensor rows_to_hugging_face(const Tensor& weight, int64_t heads) {
  return swap_inside_heads(weight, heads, weight.size(0) / heads / 2, 2);
}

void Llama3::load_hugging_face_tensor(Parameter& parameter, const checkpoint::SafetensorsReader& weights) const {
  std::string name = hugging_face_name(parameter.fqn);
  // A folder with tied weights leaves the head out.
  if (name == "lm_head.weight" && !weights.contains(name)) name = "model.embed_tokens.weight";
  Tensor tensor = weights.tensor(name);
  TI_CHECK(tensor.sizes() == c10::IntArrayRef(parameter.global_shape),
           "{} is [{}] in the weights, but [{}] in the model. Check model.flavor against the folder's config.json.",
           name, fmt::join(tensor.sizes(), ", "), fmt::join(parameter.global_shape, ", "));
  if (parameter.fqn.ends_with(".wq.weight")) tensor = rows_from_hugging_face(tensor, args_.n_heads);
  if (parameter.fqn.ends_with(".wk.weight")) tensor = rows_from_hugging_face(tensor, args_.n_kv_heads);
  parameter.value.copy_(box_of(tensor, parameter.shard));
}

}  // namespace titanium::models::llama3
