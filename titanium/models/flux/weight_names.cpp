#include "titanium/models/flux/weight_names.h"

#include "titanium/base/error.h"

namespace titanium::models::flux {
namespace {

using Names = std::map<std::string, std::vector<std::string>, std::less<>>;

// Modules without their ".weight" and ".bias"; one that is several there has their names in the order of its rows.
const Names kOutside = {
    {"img_in", {"x_embedder"}},
    {"txt_in", {"context_embedder"}},
    {"time_in.in_layer", {"time_text_embed.timestep_embedder.linear_1"}},
    {"time_in.out_layer", {"time_text_embed.timestep_embedder.linear_2"}},
    {"guidance_in.in_layer", {"time_text_embed.guidance_embedder.linear_1"}},
    {"guidance_in.out_layer", {"time_text_embed.guidance_embedder.linear_2"}},
    {"vector_in.in_layer", {"time_text_embed.text_embedder.linear_1"}},
    {"vector_in.out_layer", {"time_text_embed.text_embedder.linear_2"}},
    {"final_layer.linear", {"proj_out"}},
    {"final_layer.adaLN_modulation.1", {"norm_out.linear"}},
};
const Names kInDouble = {
    {"img_mod.lin", {"norm1.linear"}},
    {"txt_mod.lin", {"norm1_context.linear"}},
    {"img_attn.qkv", {"attn.to_q", "attn.to_k", "attn.to_v"}},
    {"txt_attn.qkv", {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"}},
    {"img_attn.norm.query_norm", {"attn.norm_q"}},
    {"img_attn.norm.key_norm", {"attn.norm_k"}},
    {"txt_attn.norm.query_norm", {"attn.norm_added_q"}},
    {"txt_attn.norm.key_norm", {"attn.norm_added_k"}},
    {"img_attn.proj", {"attn.to_out.0"}},
    {"txt_attn.proj", {"attn.to_add_out"}},
    {"img_mlp.0", {"ff.net.0.proj"}},
    {"img_mlp.2", {"ff.net.2"}},
    {"txt_mlp.0", {"ff_context.net.0.proj"}},
    {"txt_mlp.2", {"ff_context.net.2"}},
};
const Names kInSingle = {
    {"modulation.lin", {"norm.linear"}}, {"linear1", {"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"}},
    {"linear2", {"proj_out"}},           {"norm.query_norm", {"attn.norm_q"}},
    {"norm.key_norm", {"attn.norm_k"}},
};

// "double_blocks.3.img_mlp.0.weight" -> where it is, its block's number and the module's name inside.
struct Place {
  std::string block;   // "transformer_blocks.3." or empty
  std::string module;  // "img_mlp.0"
  std::string kind;    // "weight" or "bias"
  const Names* names;
};

Place place_of(const std::string& fqn) {
  const size_t dot = fqn.rfind('.');
  Place place{"", fqn.substr(0, dot), fqn.substr(dot + 1), &kOutside};
  for (const auto& [ours, theirs, names] :
       {std::tuple{std::string("double_blocks."), "transformer_blocks.", &kInDouble},
        std::tuple{std::string("single_blocks."), "single_transformer_blocks.", &kInSingle}}) {
    if (!fqn.starts_with(ours)) continue;
    const size_t end = fqn.find('.', ours.size());
    place.block = theirs + fqn.substr(ours.size(), end + 1 - ours.size());
    place.module = fqn.substr(end + 1, dot - end - 1);
    place.names = names;
  }
  return place;
}

// Rows [first, first + count) of the parameter.
HuggingFacePiece rows_piece(const std::string& name, const Shape& shape, int64_t first, int64_t count) {
  HuggingFacePiece piece = whole_piece(name, shape);
  piece.box.offset[0] = first;
  piece.box.shape[0] = count;
  return piece;
}

}  // namespace

std::vector<HuggingFacePiece> WeightNames::pieces(const std::string& fqn, const Shape& shape) const {
  const Place place = place_of(fqn);
  const auto found = place.names->find(place.module);
  TI_ASSERT(found != place.names->end(), "{} is not a parameter of Flux", fqn);
  const auto name = [&](const std::string& module) { return fmt::format("{}{}.{}", place.block, module, place.kind); };
  const std::vector<std::string>& modules = found->second;
  if (place.module == "final_layer.adaLN_modulation.1") {
    const int64_t half = shape[0] / 2;
    std::vector<HuggingFacePiece> halves = {rows_piece(name(modules[0]), shape, 0, half),
                                            rows_piece(name(modules[0]), shape, half, half)};
    for (HuggingFacePiece& piece : halves) {
      piece.whole_shape = shape;
      piece.begin = Shape(shape.size(), 0);
    }
    halves[0].begin[0] = half;
    return halves;
  }
  if (modules.size() == 1) return {whole_piece(name(modules[0]), shape)};
  std::vector<HuggingFacePiece> pieces;
  for (int64_t first = 0; const std::string& module : modules) {
    const int64_t count = module == "proj_mlp" ? args_.mlp_hidden() : args_.hidden_size;
    pieces.push_back(rows_piece(name(module), shape, first, count));
    first += count;
  }
  return pieces;
}

std::vector<HuggingFacePiece> WeightNames::other_pieces(const std::string& fqn, const Shape& shape) const {
  std::string name = fqn;
  for (const std::string_view norm : {".query_norm.weight", ".key_norm.weight"}) {
    if (name.ends_with(norm)) name.replace(name.rfind(".weight"), std::string::npos, ".scale");
  }
  return {whole_piece(name, shape)};
}

bool WeightNames::is_redundant(const std::string& name) const {
  if (args_.guidance_embed) return false;
  return name.starts_with("guidance_in.") || name.starts_with("time_text_embed.guidance_embedder.");
}

}  // namespace titanium::models::flux
