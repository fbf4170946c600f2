// How batches run through the model: all of it on this rank, or in stages on several ranks.
#pragma once

#include <vector>

#include "titanium/data/loader.h"
#include "titanium/models/parallelize.h"

namespace titanium::train {

// All ranks call the same functions in the same order.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs forward and backward of all batches. Returns scale * the summed loss on this rank, an fp64 scalar on the
  // device. Gradients are then sums over all batches and all data-parallel ranks. Only queues work.
  virtual Tensor forward_backward(const std::vector<data::Batch>& batches, double scale) = 0;
  // The summed loss of one batch, with gradients switched off.
  virtual Tensor loss(const data::Batch& batch) = 0;

  // The rank of the pipeline axis that makes the loss; it is zero on the others.
  virtual int64_t loss_rank() const { return 0; }
  // A parameter of this rank that another one holds as well and counts and saves; null if there is none.
  virtual const Parameter* second_copy() const { return nullptr; }
};

// The whole model is on this rank.
class WholeModel : public Executor {
 public:
  // The model and its parallelism outlive it.
  WholeModel(models::LanguageModel& model, const models::Parallelism& parallelism, Device device);

  Tensor forward_backward(const std::vector<data::Batch>& batches, double scale) override;
  Tensor loss(const data::Batch& batch) override { return loss(batch, 1.0); }

 private:
  Tensor loss(const data::Batch& batch, double scale);

  models::LanguageModel& model_;
  parallel::DataParallel& data_parallel_;
  ops::SequenceShare share_;
  Device device_;
};

}  // namespace titanium::train
