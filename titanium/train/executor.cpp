#include "titanium/train/executor.h"

#include <ATen/ops/zeros.h>

#include "titanium/train/token_batch.h"

namespace titanium::train {

WholeModel::WholeModel(models::LanguageModel& model, const models::Parallelism& parallelism, Device device)
    : model_(model), data_parallel_(*parallelism.data_parallel), share_(parallelism.share), device_(device) {}

Tensor WholeModel::forward_backward(const std::vector<data::Batch>& batches, double scale) {
  Tensor total = at::zeros({}, at::TensorOptions(at::kDouble).device(device_));
  for (const data::Batch& batch : batches) {
    data_parallel_.begin_micro_batch(/*last=*/&batch == &batches.back());
    const Tensor loss = this->loss(batch, scale);
    loss.backward();
    data_parallel_.end_micro_batch();
    total.add_(loss.detach());
  }
  return total;
}

Tensor WholeModel::loss(const data::Batch& batch, double scale) {
  const LabelledBatch labelled = to_device(batch, model_, device_, share_);
  return model_.loss(labelled.inputs, labelled.labels_BS, scale);
}

}  // namespace titanium::train
