// How evenly tokens are spread over the experts of each layer.
#pragma once

#include <vector>

#include "titanium/models/model.h"
#include "titanium/parallel/mesh.h"

namespace titanium::train {

struct ExpertBalance {
  int64_t layer = 0;
  double max_over_mean = 0;  // of the tokens of an expert; 1: all have the same
  double entropy = 0;        // of the shares of tokens, over that of equal shares: 1 is even, 0 is all to one
  int64_t dead = 0;          // experts without tokens
};

// The balance of the last step for all layers, on all ranks of a pipeline, as fp64 [blocks, 4] on the model's device:
// only queued. All ranks call it together.
Tensor measure_expert_balance(const models::Model& model, const parallel::Mesh& mesh, Device device);
// The same as numbers of the host; blocks without experts are left out.
std::vector<ExpertBalance> read_expert_balance(const Tensor& measured);

}  // namespace titanium::train
