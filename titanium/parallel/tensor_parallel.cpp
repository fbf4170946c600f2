#include "titanium/parallel/tensor_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

constexpr std::string_view kAxis = "tp";

// The component up to the next dot, which is removed from `name` as well.
std::string_view next_component(std::string_view& name) {
  const size_t dot = name.find('.');
  const std::string_view component = name.substr(0, dot);
  name = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
  return component;
}

bool component_matches(std::string_view pattern, std::string_view component) {
  if (pattern == "*") return true;
  if (!pattern.starts_with('{')) return pattern == component;
  std::string_view alternatives = pattern.substr(1, pattern.size() - 2);
  while (!alternatives.empty()) {
    const size_t comma = alternatives.find(',');
    if (alternatives.substr(0, comma) == component) return true;
    alternatives = comma == std::string_view::npos ? std::string_view() : alternatives.substr(comma + 1);
  }
  return false;
}

const TensorParallelRule& rule_of(const Parameter& parameter, const TensorParallelPlan& plan) {
  const std::string_view module = std::string_view(parameter.fqn).substr(0, parameter.fqn.rfind('.'));
  const TensorParallelRule* found = nullptr;
  for (const TensorParallelRule& rule : plan) {
    if (!matches(rule.pattern, module)) continue;
    TI_ASSERT(found == nullptr, "{} has two tensor-parallel rules", parameter.fqn);
    found = &rule;
  }
  TI_ASSERT(found != nullptr, "{} has no tensor-parallel rule", parameter.fqn);
  return *found;
}

void cut(Parameter& parameter, size_t dim, int64_t rank, int64_t ranks) {
  const int64_t size = parameter.global_shape.at(dim);
  if (size % ranks != 0) {
    throw UsageError(
        fmt::format("parallelism.tensor_parallel_degree = {} does not divide dim {} of {}, which has {} elements. Use "
                    "a degree that "
                    "divides it.",
                    ranks, dim, parameter.fqn, size));
  }
  parameter.part.shape[dim] = size / ranks;
  parameter.part.offset[dim] = rank * (size / ranks);
  parameter.shard = parameter.part;
  parameter.placements.push_back({std::string(kAxis), static_cast<int64_t>(dim)});
}

class GroupRowExchange : public ops::RowExchange {
 public:
  GroupRowExchange(comm::GroupPtr group, int64_t pieces) : group_(std::move(group)), pieces_(pieces) {}

  int64_t ranks() const override { return group_->size(); }
  int64_t pieces() const override { return pieces_; }

  ops::Pending gather(const Tensor& rows) override {
    const Tensor all = at::empty({rows.size(0) * ranks(), rows.size(1)}, rows.options());
    return pending(all, group_->all_gather(all, rows.contiguous()));
  }

  ops::Pending reduce_scatter(const Tensor& partial) override {
    TI_ASSERT(partial.size(0) % ranks() == 0, "{} tokens on {} ranks", partial.size(0), ranks());
    const Tensor rows = at::empty({partial.size(0) / ranks(), partial.size(1)}, partial.options());
    return pending(rows, group_->reduce_scatter(rows, partial.contiguous(), comm::Reduce::kSum));
  }

  Tensor gather_columns(const Tensor& columns) override {
    const Tensor stacked = at::empty({ranks(), columns.size(0), columns.size(1)}, columns.options());
    group_->all_gather(stacked, columns.contiguous())->wait();
    return stacked.transpose(0, 1).flatten(1);
  }

  void sum(const Tensor& tensor) override { group_->all_reduce(tensor, comm::Reduce::kSum)->wait(); }
  void max(const Tensor& tensor) override { group_->all_reduce(tensor, comm::Reduce::kMax)->wait(); }

 private:
  static ops::Pending pending(Tensor result, comm::Work work) {
    return [result = std::move(result), work = std::shared_ptr<comm::PendingWork>(std::move(work))] {
      work->wait();
      return result;
    };
  }

  comm::GroupPtr group_;
  int64_t pieces_;
};

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  while (!pattern.empty() && !name.empty()) {
    if (!component_matches(next_component(pattern), next_component(name))) return false;
  }
  return pattern.empty() && name.empty();
}

void cut_parameters(const std::vector<Parameter*>& parameters, const TensorParallelPlan& plan, int64_t rank,
                    int64_t ranks) {
  for (Parameter* parameter : parameters) {
    switch (rule_of(*parameter, plan).style) {
      case TensorParallelStyle::kByColumn:
        cut(*parameter, 0, rank, ranks);
        break;
      case TensorParallelStyle::kByRow:
        cut(*parameter, 1, rank, ranks);
        break;
      case TensorParallelStyle::kOnSequence:
        break;
    }
  }
}

std::unique_ptr<ops::RowExchange> make_row_exchange(comm::GroupPtr group, int64_t pieces) {
  return std::make_unique<GroupRowExchange>(std::move(group), pieces);
}

void sum_sequence_grads(const std::vector<Parameter*>& parameters, const Mesh& mesh) {
  if (mesh.size(kAxis) == 1) return;
  std::vector<Tensor> grads, flat;
  for (const Parameter* parameter : parameters) {
    if (is_cut_by(*parameter, kAxis) || !parameter->grad.defined()) continue;
    grads.push_back(parameter->grad);
    flat.push_back(parameter->grad.flatten().to(at::kFloat));
  }
  if (grads.empty()) return;
  const Tensor all = at::cat(flat);
  mesh.reduce(kAxis, all, comm::Reduce::kSum);
  int64_t first = 0;
  for (Tensor& grad : grads) {
    grad.copy_(all.narrow(0, first, grad.numel()).view(grad.sizes()));
    first += grad.numel();
  }
}

bool is_cut_by(const Parameter& parameter, std::string_view axis) {
  return std::any_of(parameter.placements.begin(), parameter.placements.end(),
                     [&](const Placement& placement) { return placement.axis == axis; });
}

}  // namespace titanium::parallel
