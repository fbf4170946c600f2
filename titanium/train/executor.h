// How batches run through the model: all of it on this rank, or in stages on several ranks.
#pragma once

#include <vector>

#include "titanium/parallel/data_parallel/data_parallel.h"
#include "titanium/train/task/task.h"

namespace titanium::train {

// All ranks call the same functions in the same order.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs forward and backward of all batches. Returns scale * the summed loss on this rank, an fp64 scalar on the
  // device. Gradients are then sums over all batches and all data-parallel ranks. Only queues work.
  virtual Tensor forward_backward(const std::vector<BatchPtr>& batches, double scale) = 0;
  // The summed loss of one batch, with gradients switched off.
  virtual Tensor loss(const Batch& batch) = 0;

  // The rank of the pipeline axis that makes the loss; it is zero on the others.
  virtual int64_t loss_rank() const { return 0; }
  // A parameter of this rank that another one holds as well and counts and saves; null if there is none.
  virtual const Parameter* second_copy() const { return nullptr; }
};

// The whole model is on this rank.
class WholeModel : public Executor {
 public:
  // `data_parallel` outlives it.
  WholeModel(const models::Model& model, parallel::DataParallel& data_parallel, Device device);

  Tensor forward_backward(const std::vector<BatchPtr>& batches, double scale) override;
  Tensor loss(const Batch& batch) override { return loss(batch, 1.0); }

 private:
  Tensor loss(const Batch& batch, double scale) const;

  models::ModelStage whole_;
  parallel::DataParallel& data_parallel_;
  Device device_;
};

}  // namespace titanium::train
