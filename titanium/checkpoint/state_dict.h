// What a checkpoint of a training run holds, under torchtitan's names: model parameters at the top level, everything
// else below "optimizer", "lr_scheduler", "dataloader" and "train_state".
#pragma once

#include <span>

#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/dcp/writer.h"
#include "titanium/nn/module.h"
#include "titanium/optim/optimizer.h"
#include "titanium/parallel/parallel_dims.h"

namespace titanium::checkpoint {

// What one rank writes. Tensors are views of the run's own.
struct StateDict {
  std::vector<DcpTensorItem> tensors;
  std::vector<DcpObjectItem> objects;
};

// Note [Shares]
// A shard that R ranks hold alike is written by all of them, a share of its rows each, so that no rank writes what
// another one does and all write about as many bytes, without a word between them. Tensors below 1 MiB are not cut:
// the ranks take turns with them. Scalars and options of a parameter and buffers are written by the first rank of the
// pipeline stage that holds them.
class Shares {
 public:
  // `left_out` is a parameter that others write; null: none.
  Shares(const parallel::ParallelDims& dims, int rank, const Parameter* left_out = nullptr)
      : dims_(dims), rank_(rank), left_out_(left_out) {}

  // The box of the parameter's shard that this rank saves; `turn` is the parameter's place among all. Nothing if other
  // ranks save all of it.
  std::optional<Box> of(const Parameter& parameter, size_t turn, size_t bytes) const;
  bool is_first_holder(const Parameter& parameter) const;
  bool is_first_of_stage() const;

 private:
  parallel::ParallelDims dims_;
  int rank_;
  const Parameter* left_out_;
};

// The parameters and the persistent buffers. In `dtype`, if one is given; numbers that are no floating-point ones keep
// theirs.
void add_model(StateDict& state, const nn::Module& model, const Shares& shares,
               std::optional<Dtype> dtype = std::nullopt);

// The optimizer's state, and for each parameter what torch's param_groups say of it; `lr` is that of the next step.
void add_optimizer(StateDict& state, const optim::Optimizer& optimizer, const optim::LearningRate& lr,
                   const Shares& shares);

// A value under the names `first`.`second`.
void add_object(StateDict& state, const std::string& first, const std::string& second, PickleValue value);

// Fills the model's parameters and persistent buffers from a checkpoint, whose names may begin with "model.", as some
// tools write them. `model` may be a part of `whole`, the model on all ranks together. Throws Error when a tensor is
// missing, when there is one that the model does not have, and as DcpReader::read does.
void load_model(const DcpReader& reader, const nn::Module& model, const nn::Module& whole);
void load_optimizer(const DcpReader& reader, const optim::Optimizer& optimizer);

// Whether there is something under the name `first`.
bool has_state(const DcpReader& reader, const std::string& first);

}  // namespace titanium::checkpoint
