#include "titanium/train/validate.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::train {
namespace {

// The next batch of this rank; nothing when the data of all ranks has ended. All ranks run the same number of batches,
// because they compute together.
BatchPtr next_batch(const TrainState& run, BatchSource& data) {
  BatchPtr batch = data.next();
  const Tensor anyone = at::scalar_tensor(batch ? 1 : 0, at::kLong);
  run.mesh->reduce("batch", anyone, comm::Reduce::kMax);
  if (anyone.item<int64_t>() == 0) return nullptr;
  return batch ? std::move(batch) : data.weightless();
}

}  // namespace

ValidationReport validate(const TrainState& run, BatchSource& data) {
  const TraceScope scope("validation");
  const c10::AutoGradMode no_grad(false);
  const int64_t steps = run.config.validation.steps;
  ValidationReport report;
  const Tensor total = at::zeros({}, at::TensorOptions(at::kDouble).device(run.device));
  const Tensor weight = at::zeros({}, at::kLong);
  for (int64_t i = 0; steps == -1 || i < steps; ++i) {
    const BatchPtr batch = next_batch(run, data);
    if (batch == nullptr) break;
    total.add_(run.executor->loss(*batch));
    weight.add_(batch->weight());
    report.tokens += batch->tokens();
  }
  if (steps == -1) data.rewind();
  for (const char* axis : {"loss", "pp"}) run.mesh->reduce(axis, total, comm::Reduce::kSum);
  run.mesh->reduce("loss", weight, comm::Reduce::kSum);
  TI_CHECK(weight.item<int64_t>() > 0,
           "the validation set has no complete sample. Use a smaller validation.seq_len or more data.");
  report.loss = total.item<double>() / static_cast<double>(weight.item<int64_t>());
  return report;
}

}  // namespace titanium::train
