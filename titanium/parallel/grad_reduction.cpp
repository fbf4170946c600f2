#include "titanium/parallel/grad_reduction.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <set>

#include "titanium/base/error.h"
#include "titanium/parallel/placement.h"

namespace titanium::parallel {
namespace {

// In fp32, through one flat tensor.
void sum_over(const Axes& axes, const std::vector<Tensor>& grads, const Mesh& mesh) {
  std::vector<Tensor> flat;
  for (const Tensor& grad : grads) flat.push_back(grad.flatten().to(at::kFloat));
  const Tensor all = at::cat(flat);
  for (const std::string_view axis : axes) mesh.reduce(axis, all, comm::Reduce::kSum);
  int64_t first = 0;
  for (const Tensor& grad : grads) {
    grad.copy_(all.narrow(0, first, grad.numel()).view(grad.sizes()));
    first += grad.numel();
  }
}

// The axes inside a pipeline stage that cut at least one of the parameters, outermost first. All live in one view.
Axes cutting_axes(const std::vector<Parameter*>& parameters, const ParallelDims& dims) {
  std::set<std::string_view> cutting;
  for (const Parameter* parameter : parameters) {
    for (const std::string_view axis : axis_sets(*parameter, dims).cut) cutting.insert(axis);
  }
  const ViewAxes& view = axes_of_view(parameters.front()->view, dims);
  Axes axes = {view.replicate, view.shard, view.expert, view.tensor};
  std::erase_if(axes, [&](std::string_view axis) { return !cutting.contains(axis); });
  return axes;
}

// Over all ranks of this pipeline stage. Of the ranks that hold a parameter alike, the first along these axes counts.
Tensor sum_of_squares_in_stage(const std::vector<Parameter*>& parameters, const Mesh& mesh,
                               const SumOfSquares& squares) {
  const Axes axes = cutting_axes(parameters, mesh.dims());
  std::vector<Parameter*> counted = parameters;
  std::erase_if(counted, [&](const Parameter* parameter) {
    return replica_along(*parameter, axes, mesh.dims(), mesh.world().rank()).place != 0;
  });
  const Tensor sum = counted.empty()
                         ? at::zeros({}, parameters.front()->value.options().dtype(at::kDouble).requires_grad(false))
                         : squares(counted);
  for (const std::string_view axis : axes) mesh.reduce(axis, sum, comm::Reduce::kSum);
  return sum;
}

}  // namespace

void sum_replicated_grads(const std::vector<Parameter*>& parameters, const Mesh& mesh) {
  std::map<Axes, std::vector<Tensor>> by_axes;
  for (const Parameter* parameter : parameters) {
    const Axes axes = axes_to_sum(*parameter, mesh.dims());
    if (!axes.empty() && parameter->grad.defined()) by_axes[axes].push_back(parameter->grad);
  }
  for (const auto& [axes, grads] : by_axes) sum_over(axes, grads, mesh);
}

Tensor global_grad_norm(const std::vector<Parameter*>& parameters, const Mesh& mesh, const SumOfSquares& squares) {
  std::map<std::string_view, std::vector<Parameter*>> by_view;  // the axis of shards stands for it
  for (Parameter* parameter : parameters) {
    by_view[axes_of_view(parameter->view, mesh.dims()).shard].push_back(parameter);
  }
  TI_ASSERT(!by_view.empty(), "a rank without parameters has no gradients");
  Tensor sum;
  for (const auto& [axis, of_view] : by_view) {
    const Tensor of_stage = sum_of_squares_in_stage(of_view, mesh, squares);
    sum = sum.defined() ? sum + of_stage : of_stage;
  }
  mesh.reduce(axes_of_view(RankView::kDense, mesh.dims()).pipeline, sum, comm::Reduce::kSum);
  return sum.sqrt();
}

}  // namespace titanium::parallel
