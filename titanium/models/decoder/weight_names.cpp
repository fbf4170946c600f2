#include "titanium/models/decoder/weight_names.h"

#include <algorithm>

#include "titanium/base/error.h"

namespace titanium::models::decoder {
namespace {

const std::map<std::string, std::string, std::less<>> kOutside = {
    {"tok_embeddings.weight", "model.embed_tokens.weight"},
    {"norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

// One tensor for each row of the first dim, whose number is at `number` of the name in the place of {}.
std::vector<HuggingFacePiece> pieces_of_experts(const std::string& name, size_t number, const Shape& global_shape) {
  std::vector<HuggingFacePiece> pieces;
  for (int64_t expert = 0; expert < global_shape.at(0); ++expert) {
    HuggingFacePiece piece = whole_piece(std::string(name).replace(number, 2, std::to_string(expert)), global_shape);
    piece.box.offset[0] = expert;
    piece.box.shape[0] = 1;
    piece.dropped_dims = 1;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace

const NamesInBlock& dense_names_in_block() {
  static const NamesInBlock names = {
      {"attention.wq.weight", "self_attn.q_proj.weight"},     {"attention.wk.weight", "self_attn.k_proj.weight"},
      {"attention.wv.weight", "self_attn.v_proj.weight"},     {"attention.wo.weight", "self_attn.o_proj.weight"},
      {"feed_forward.w1.weight", "mlp.gate_proj.weight"},     {"feed_forward.w2.weight", "mlp.down_proj.weight"},
      {"feed_forward.w3.weight", "mlp.up_proj.weight"},       {"attention_norm.weight", "input_layernorm.weight"},
      {"ffn_norm.weight", "post_attention_layernorm.weight"},
  };
  return names;
}

NamesInBlock names_in_block_with_experts() {
  NamesInBlock names = dense_names_in_block();
  names["moe.router.gate.weight"] = "mlp.gate.weight";
  names["moe.experts.w1"] = "mlp.experts.{}.gate_proj.weight";
  names["moe.experts.w2"] = "mlp.experts.{}.down_proj.weight";
  names["moe.experts.w3"] = "mlp.experts.{}.up_proj.weight";
  names["moe.expert_bias"] = "";
  return names;
}

std::vector<HuggingFacePiece> NamedWeights::pieces(const std::string& fqn, const Shape& global_shape) const {
  if (const auto found = kOutside.find(fqn); found != kOutside.end()) {
    HuggingFacePiece piece = whole_piece(found->second, global_shape);
    if (fqn == "output.weight") piece.stand_in = kOutside.at("tok_embeddings.weight");
    return {piece};
  }
  const size_t end_of_number = fqn.find('.', std::string_view("layers.").size());
  TI_ASSERT(fqn.starts_with("layers.") && end_of_number != std::string::npos, "{} is not a parameter of a block", fqn);
  const std::string inside = fqn.substr(end_of_number + 1);
  const std::string& theirs = names_.at(inside);
  if (theirs.empty()) return {};
  const std::string name = fmt::format("model.{}.{}", fqn.substr(0, end_of_number), theirs);
  if (const size_t number = name.find("{}"); number != std::string::npos) {
    return pieces_of_experts(name, number, global_shape);
  }
  HuggingFacePiece piece = whole_piece(name, global_shape);
  if (std::ranges::count(rotated_, inside) > 0) piece.head_rows = head_rows_;
  return {piece};
}

bool NamedWeights::is_redundant(const std::string& name) const {
  if (name == "rope.freqs" || name == "freqs_cis" || name.ends_with("rotary_emb.inv_freq")) return true;
  return tied_ && (name == "output.weight" || name == "lm_head.weight");
}

}  // namespace titanium::models::decoder
