// The weights of a model in a file or folder of any format, under our names and in our layout.
#pragma once

#include <map>
#include <string>

#include "titanium/checkpoint/weights_source.h"
#include "titanium/models/model.h"

namespace titanium::models {

class ModelWeights {
 public:
  // Finds the model's parameters and persistent buffers in the source, which must outlive this. Their names there are
  // ours, ours below "model.", or Hugging Face's, whose order of rows is then undone. Quantised tensors count as what
  // they stand for (checkpoint/expanded_weights.h). Training state beside the model and what the model calls redundant
  // is passed over. Throws Error for a parameter that is missing or has another shape or no floating-point numbers, and
  // for a tensor that the model does not have.
  ModelWeights(const Model& model, const checkpoint::WeightsSource& source);

  // The dtype in which the parameter is stored; float32 for a buffer that is not there.
  Dtype dtype(const std::string& fqn) const;

  // Copies a box of the parameter into `destination`, of any strides, dtype and device. Reads only the bytes of the
  // box. Throws as WeightsSource::read does.
  void read(const std::string& fqn, const Box& box, const Tensor& destination) const;

 private:
  void check_names(const Model& model) const;

  std::unique_ptr<const checkpoint::WeightsSource> expanded_;  // null: nothing is quantised
  const checkpoint::WeightsSource& source_;
  std::map<std::string, std::vector<HuggingFacePiece>> places_;  // by our name: the tensors of the source
};

// Whether the name is that of a part of a training state that stands beside the model: optimizer and the like.
bool is_training_state(std::string_view name);

// Fills what is stored here of a materialised model's parameters, and its persistent buffers.
void load_weights(Model& model, const checkpoint::WeightsSource& source);

}  // namespace titanium::models
