#include "titanium/train/executor.h"

#include <ATen/ops/zeros.h>

#include "titanium/tensor/trace_scope.h"

namespace titanium::train {

WholeModel::WholeModel(const models::Model& model, parallel::DataParallel& data_parallel, Device device)
    : whole_(models::whole_stage(model.block_count())), data_parallel_(data_parallel), device_(device) {}

Tensor WholeModel::forward_backward(const std::vector<BatchPtr>& batches, double scale) {
  Tensor total = at::zeros({}, at::TensorOptions(at::kDouble).device(device_));
  for (const BatchPtr& batch : batches) {
    data_parallel_.begin_micro_batch(/*last=*/&batch == &batches.back());
    const Tensor loss = this->loss(*batch, scale);
    {
      const TraceScope scope("backward");
      loss.backward();
    }
    data_parallel_.end_micro_batch();
    total.add_(loss.detach());
  }
  return total;
}

Tensor WholeModel::loss(const Batch& batch, double scale) const {
  const TraceScope scope("forward");
  return batch.to_device(0, batch.samples())->run_stage(whole_, {}, scale)[0];
}

}  // namespace titanium::train
