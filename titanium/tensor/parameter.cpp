#include "titanium/tensor/parameter.h"

#include <ATen/ops/empty.h>

#include "titanium/base/error.h"

namespace titanium {

Tensor box_of(const Tensor& whole, const Box& box) {
  Tensor view = whole;
  for (size_t dim = 0; dim < box.shape.size(); ++dim) {
    view = view.narrow(static_cast<int64_t>(dim), box.offset[dim], box.shape[dim]);
  }
  return view;
}

Parameter::Parameter(std::string fqn, Shape global_shape)
    : fqn(std::move(fqn)),
      global_shape(std::move(global_shape)),
      part{Shape(this->global_shape.size(), 0), this->global_shape},
      shard(part) {}

ElementNumbers element_numbers(const Parameter& parameter) {
  const Box& shard = parameter.shard;
  const size_t dims = parameter.global_shape.size();
  TI_ASSERT(dims == 1 || dims == 2, "{} has {} dims", parameter.fqn, dims);
  if (dims == 1) return {.first = shard.offset[0], .columns = shard.shape[0], .row_stride = shard.shape[0]};
  const int64_t row_stride = parameter.global_shape[1];
  return {.first = shard.offset[0] * row_stride + shard.offset[1], .columns = shard.shape[1], .row_stride = row_stride};
}

void Parameter::materialize(Dtype dtype, Device device, bool pinned) {
  value = at::empty(shard.shape, at::TensorOptions(dtype).device(device).pinned_memory(pinned)).requires_grad_(true);
  value_changed();
}

void Parameter::drop_copies() {
  cast_ = Tensor();
  if (float8) float8->drop_part();
}

void Parameter::value_changed() {
  drop_copies();
  if (float8) float8->value_changed();
}

void Parameter::hold_gathered(Tensor whole_part) {
  drop_copies();
  gathered_ = std::move(whole_part);
}

void Parameter::hold_gathered(const Float8Tensor& whole_part) {
  drop_copies();
  float8->for_output = whole_part;
  float8->for_input_grad = {whole_part.data.t(), whole_part.scale, whole_part.reciprocal};
}

void Parameter::drop_gathered() {
  drop_copies();
  gathered_ = Tensor();
}

Tensor Parameter::gathered_part() const {
  TI_ASSERT(gathered_.defined(), "{} is used outside its unit", fqn);
  return gathered_;
}

Tensor Parameter::in(Dtype dtype) const {
  const Tensor here = as_stored();
  if (here.scalar_type() == dtype) return here;
  if (!cast_.defined() || cast_.scalar_type() != dtype) cast_ = here.to(dtype);
  return cast_;
}

void Parameter::accumulate(const Tensor& gradient) {
  TI_ASSERT(gradient.sizes() == c10::IntArrayRef(part.shape), "gradient of {} has another shape than the parameter",
            fqn);
  Tensor& sum = grad_sum();
  if (sum.defined()) {
    sum.add_(gradient);
  } else if (grad_place.defined()) {
    sum = grad_place.copy_(gradient);
  } else {
    sum = gradient.to(grad_sum_dtype());
  }
}

Parameter::GradSum Parameter::open_grad_sum(Device device) {
  Tensor& sum = grad_sum();
  if (sum.defined()) return {sum, false};
  sum = grad_place.defined() ? grad_place : at::empty(part.shape, at::TensorOptions(grad_sum_dtype()).device(device));
  return {sum, true};
}

void Parameter::gather_around_use(Dtype dtype) {
  gathers_ = true;
  part_grad_dtype_ = dtype;
}

}  // namespace titanium
