// The names of Flux's weights at Hugging Face (diffusers) and in the files of Black Forest Labs. Ours are torchtitan's.
#pragma once

#include "titanium/models/flux/args.h"
#include "titanium/models/hugging_face_adapter.h"

namespace titanium::models::flux {

class WeightNames : public HuggingFaceAdapter {
 public:
  explicit WeightNames(const Args& args) : args_(args) {}

  // Diffusers has queries, keys, values and the first product of the feed-forward apart, and the two halves of the last
  // modulation in the other order.
  std::vector<HuggingFacePiece> pieces(const std::string& fqn, const Shape& global_shape) const override;
  // Black Forest Labs' names are ours but for the norms of heads.
  std::vector<HuggingFacePiece> other_pieces(const std::string& fqn, const Shape& global_shape) const override;
  std::string config_json(Dtype) const override { return to_config_json(args_); }
  // The embedding of a guidance strength that a distilled model has, where this one has none, as torchtitan's.
  bool is_redundant(const std::string& name) const override;

 private:
  const Args args_;
};

}  // namespace titanium::models::flux
