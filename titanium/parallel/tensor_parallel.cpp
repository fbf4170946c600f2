#include "titanium/parallel/tensor_parallel.h"

#include <ATen/ops/empty.h>

#include "titanium/base/error.h"
#include "titanium/parallel/placement.h"

namespace titanium::parallel {
namespace {

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

// The rule whose pattern matches `name`, or null. Layers of different kinds may have the same rule in other words.
const TensorParallelRule* rule_for(std::string_view name, const TensorParallelPlan& plan) {
  const TensorParallelRule* found = nullptr;
  for (const TensorParallelRule& rule : plan) {
    if (!matches(rule.pattern, name)) continue;
    TI_ASSERT(found == nullptr || found->style == rule.style, "{} has two tensor-parallel rules", name);
    found = &rule;
  }
  return found;
}

const TensorParallelRule& rule_of(const Parameter& parameter, const TensorParallelPlan& plan) {
  const std::string_view module = std::string_view(parameter.fqn).substr(0, parameter.fqn.rfind('.'));
  const TensorParallelRule* found = rule_for(parameter.fqn, plan);
  if (found == nullptr) found = rule_for(module, plan);
  TI_ASSERT(found != nullptr, "{} has no tensor-parallel rule", parameter.fqn);
  return *found;
}

void apply(TensorParallelStyle style, Parameter& parameter, const ParallelDims& dims, int rank) {
  const std::string_view axis = axes_of_view(parameter.view, dims).tensor;
  const auto last = static_cast<int64_t>(parameter.global_shape.size()) - 1;
  switch (style) {
    case TensorParallelStyle::kByColumn:
      cut(parameter, axis, std::max<int64_t>(last - 1, 0), dims, rank);
      break;
    case TensorParallelStyle::kByRow:
      cut(parameter, axis, last, dims, rank);
      break;
    case TensorParallelStyle::kOnSequence:
      break;
    case TensorParallelStyle::kOnAllRows:
      parameter.equal_grads.emplace_back(axis);
      break;
  }
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

void cut_parameters(const std::vector<Parameter*>& parameters, const TensorParallelPlan& plan, const ParallelDims& dims,
                    int rank) {
  for (Parameter* parameter : parameters) {
    const std::string_view expert = axes_of_view(parameter->view, dims).expert;
    if (!expert.empty()) cut(*parameter, expert, /*dim=*/0, dims, rank);
    apply(rule_of(*parameter, plan).style, *parameter, dims, rank);
  }
}

std::unique_ptr<ops::RowExchange> make_row_exchange(comm::GroupPtr group, int64_t pieces) {
  return std::make_unique<GroupRowExchange>(std::move(group), pieces);
}

}  // namespace titanium::parallel
