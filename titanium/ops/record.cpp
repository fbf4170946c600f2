#include "titanium/ops/record.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "titanium/base/error.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

class RecordedNode : public torch::autograd::Node {
 public:
  explicit RecordedNode(Backward backward) : backward_(std::move(backward)), place_(TraceScope::current()) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& output_grads) override {
    TI_ASSERT(backward_ != nullptr, "backward ran twice over the same graph");
    std::optional<TraceScope> part, range;
    if (!place_.part.empty()) part.emplace(place_.part, "backward", TraceScope::Kind::kPart);
    if (!place_.range.empty() && place_.range != place_.part) range.emplace(place_.range, "backward");
    const bool any = std::ranges::any_of(output_grads, [](const Tensor& grad) { return grad.defined(); });
    return any ? backward_(output_grads) : Tensors(num_outputs());
  }
  void release_variables() override { backward_ = nullptr; }
  std::string name() const override {
    return place_.range.empty() ? "titanium::ops::RecordedNode" : place_.range + " backward";
  }

 private:
  Backward backward_;
  TraceScope::Place place_;  // where the forward recorded it, while a step is profiled
};

// A view keeps its base alive, which then is the second tensor on the storage.
bool is_held_once(const Tensor& x) {
  if (x.use_count() != 1) return false;
  return x.is_view() ? x._base().use_count() == 1 && x.storage().use_count() == 2 : x.storage().use_count() == 1;
}

// f on leaves with the values of `inputs`, and the gradients of those that `wanted` names; the others are undefined.
Tensors grads_of(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs,
                 const std::vector<bool>& wanted, const Tensors& output_grads) {
  const c10::AutoGradMode with_grad(true);
  Tensors leaves, wanted_leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(inputs[i].defined() ? inputs[i].detach() : Tensor());
    if (wanted[i]) wanted_leaves.push_back(leaves.back().requires_grad_(true));
  }
  Tensors outputs, grads;
  const Tensors all = f(leaves);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!output_grads[i].defined() || !all[i].requires_grad()) continue;
    outputs.push_back(all[i]);
    grads.push_back(output_grads[i]);
  }
  Tensors found = torch::autograd::grad(outputs, wanted_leaves, grads, /*retain_graph=*/std::nullopt,
                                        /*create_graph=*/false, /*allow_unused=*/true);
  Tensors result(inputs.size());
  for (size_t i = inputs.size(); i-- > 0;) {
    if (!wanted[i]) continue;
    result[i] = std::move(found.back());
    found.pop_back();
  }
  return result;
}

}  // namespace

bool needs_grad(const Tensors& inputs) {
  return c10::GradMode::is_enabled() &&
         std::ranges::any_of(inputs, [](const Tensor& input) { return input.defined() && input.requires_grad(); });
}

void record(const Tensors& inputs, const Tensors& outputs, Backward backward) {
  if (!needs_grad(inputs)) return;
  std::shared_ptr<RecordedNode> node(new RecordedNode(std::move(backward)), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (const Tensor& output : outputs) torch::autograd::set_history(output, node);
}

Tensor own(const Tensor& gradient) {
  if (is_held_once(gradient) && gradient.is_non_overlapping_and_dense()) return gradient;
  return gradient.clone(at::MemoryFormat::Contiguous);
}

Tensors on_backward(const Tensors& inputs, std::function<void()> f) {
  if (!needs_grad(inputs)) return inputs;
  Tensors same = inputs, from, to;
  for (Tensor& tensor : same) {
    if (!needs_grad({tensor})) continue;
    from.push_back(tensor);
    to.push_back(tensor = tensor.detach());
  }
  record(from, to, [f = std::move(f)](const Tensors& output_grads) -> Tensors {
    f();
    return output_grads;
  });
  return same;
}

Tensors recompute(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs) {
  Tensors outputs, saved;
  {
    const c10::AutoGradMode no_grad(false);
    outputs = f(inputs);
  }
  if (!needs_grad(inputs)) return outputs;
  std::vector<bool> wanted;
  for (const Tensor& input : inputs) {
    wanted.push_back(needs_grad({input}));
    saved.push_back(input.defined() ? input.detach() : Tensor());
    for (Tensor& output : outputs) {
      if (output.is_same(input)) output = input.detach();
    }
  }
  record(inputs, outputs, [f, saved = std::move(saved), wanted](const Tensors& output_grads) {
    return grads_of(f, saved, wanted, output_grads);
  });
  return outputs;
}

Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  return recompute([f](const Tensors& inputs) { return Tensors{f(inputs[0])}; }, Tensors{x})[0];
}

}  // namespace titanium::ops
