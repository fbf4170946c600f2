#include "titanium/tensor/parameter.h"

#include <ATen/ops/empty.h>

#include "titanium/base/error.h"

namespace titanium {
namespace {

// One dim of a box, or several whose elements lie as those of one.
struct Level {
  int64_t offset;
  int64_t held;
  int64_t whole;
};

// Outermost first. A dim that is not cut joins the one outside of it, so that all but the first are cut.
std::vector<Level> levels_of(const Parameter& parameter) {
  std::vector<Level> inner_first;
  for (size_t dim = parameter.global_shape.size(); dim-- > 0;) {
    const Level level{parameter.shard.offset[dim], parameter.shard.shape[dim], parameter.global_shape[dim]};
    if (!inner_first.empty() && inner_first.back().held == inner_first.back().whole) {
      Level& inner = inner_first.back();
      inner = {level.offset * inner.whole, level.held * inner.whole, level.whole * inner.whole};
    } else {
      inner_first.push_back(level);
    }
  }
  return {inner_first.rbegin(), inner_first.rend()};
}

}  // namespace

Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

Tensor box_of(const Tensor& whole, const Box& box) {
  Tensor view = whole;
  for (size_t dim = 0; dim < box.shape.size(); ++dim) {
    view = view.narrow(static_cast<int64_t>(dim), box.offset[dim], box.shape[dim]);
  }
  return view;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common;
  for (size_t dim = 0; dim < a.shape.size(); ++dim) {
    const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const int64_t end = std::min(a.offset[dim] + a.shape[dim], b.offset[dim] + b.shape[dim]);
    if (begin >= end) return std::nullopt;
    common.offset.push_back(begin);
    common.shape.push_back(end - begin);
  }
  return common;
}

Parameter::Parameter(std::string fqn, Shape global_shape)
    : fqn(std::move(fqn)), global_shape(std::move(global_shape)), part(whole_box(this->global_shape)), shard(part) {}

std::vector<ElementNumbers> element_numbers(const Parameter& parameter) {
  const int64_t elements = volume(parameter.shard.shape);
  if (elements == 0) return {};
  const std::vector<Level> levels = levels_of(parameter);
  if (levels.size() < 2) {  // one stretch, in rows for those who share the work
    const int64_t rows = parameter.shard.shape.size() < 2 ? 1 : parameter.shard.shape[0];
    const int64_t columns = elements / rows, first = levels.empty() ? 0 : levels[0].offset;
    return {{.begin = 0, .rows = rows, .columns = columns, .first = first, .row_stride = columns}};
  }
  const Level &rows = levels[levels.size() - 2], &columns = levels.back();
  std::vector<ElementNumbers> matrices;
  for (int64_t begin = 0; begin < elements; begin += rows.held * columns.held) {
    // The indices of the matrix along the levels outside of it.
    int64_t rest = begin / (rows.held * columns.held), stride = rows.whole * columns.whole;
    int64_t first = rows.offset * columns.whole + columns.offset;
    for (size_t i = levels.size() - 2; i-- > 0;) {
      first += (levels[i].offset + rest % levels[i].held) * stride;
      rest /= levels[i].held;
      stride *= levels[i].whole;
    }
    matrices.push_back({begin, rows.held, columns.held, first, columns.whole});
  }
  return matrices;
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

Tensor Parameter::kept_copy(Dtype dtype) const {
  return !gathers_ && cast_.defined() && cast_.scalar_type() == dtype ? cast_ : Tensor();
}

void Parameter::value_and_copy_changed() {
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
  Tensor here = as_stored();
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
