// Names of a decoder's weights at Hugging Face, where most families agree.
#pragma once

#include <map>

#include "titanium/models/decoder/args.h"
#include "titanium/models/hugging_face_adapter.h"

namespace titanium::models::decoder {

// "attention.wq.weight" -> "self_attn.q_proj.weight": what is below layers.<i> here and model.layers.<i> there. With {}
// in a name the parameter is stacked experts, of which each is a tensor there, {} its number. What has an empty name is
// not there.
using NamesInBlock = std::map<std::string, std::string, std::less<>>;

// Norms, grouped-query attention, and a SwiGLU feed-forward layer.
const NamesInBlock& dense_names_in_block();
// These, and a layer of experts in the place of the feed-forward layer: one tensor per expert; no bias that balances.
NamesInBlock names_in_block_with_experts();

// An adapter that needs only names and, where Hugging Face rotates other pairs of a head, the order of rows. A family
// derives from it.
class NamedWeights : public HuggingFaceAdapter {
 public:
  // `rotated` are the names inside a block whose rows are permuted inside heads of `head_rows`.
  NamedWeights(NamesInBlock names, bool tied, std::vector<std::string> rotated = {}, int64_t head_rows = 0)
      : names_(std::move(names)), tied_(tied), rotated_(std::move(rotated)), head_rows_(head_rows) {}

  std::vector<HuggingFacePiece> pieces(const std::string& fqn, const Shape& global_shape) const override;
  bool is_redundant(const std::string& name) const override;

 private:
  NamesInBlock names_;
  bool tied_;
  std::vector<std::string> rotated_;
  int64_t head_rows_;
};

}  // namespace titanium::models::decoder
