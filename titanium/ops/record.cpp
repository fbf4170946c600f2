#include "titanium/ops/record.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "titanium/base/error.h"

namespace titanium::ops {
namespace {

class RecordedNode : public torch::autograd::Node {
 public:
  explicit RecordedNode(Backward backward) : backward_(std::move(backward)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& output_grads) override {
    TI_ASSERT(backward_ != nullptr, "backward ran twice over the same graph");
    return backward_(output_grads);
  }
  void release_variables() override { backward_ = nullptr; }
  std::string name() const override { return "titanium::ops::RecordedNode"; }

 private:
  Backward backward_;
};

// A view keeps its base alive, which then is the second tensor on the storage.
bool is_held_once(const Tensor& x) {
  if (x.use_count() != 1) return false;
  return x.is_view() ? x._base().use_count() == 1 && x.storage().use_count() == 2 : x.storage().use_count() == 1;
}

}  // namespace

bool needs_grad(std::initializer_list<Tensor> inputs) {
  return c10::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.requires_grad(); });
}

void record(std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs, Backward backward) {
  if (!needs_grad(inputs)) return;
  std::shared_ptr<RecordedNode> node(new RecordedNode(std::move(backward)), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(Tensors(inputs)));
  for (const Tensor& output : outputs) torch::autograd::set_history(output, node);
}

Tensor own(const Tensor& gradient) {
  if (is_held_once(gradient) && gradient.is_non_overlapping_and_dense()) return gradient;
  return gradient.clone(at::MemoryFormat::Contiguous);
}

Tensor on_backward(const Tensor& x, std::function<void()> f) {
  if (!needs_grad({x})) return x;
  const Tensor same = x.detach();
  record({x}, {same}, [f = std::move(f)](const Tensors& output_grads) -> Tensors {
    f();
    return output_grads;
  });
  return same;
}

Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  Tensor y;
  {
    const c10::AutoGradMode no_grad(false);
    y = f(x);
  }
  record({x}, {y}, [f, x = x.detach()](const Tensors& output_grads) -> Tensors {
    const c10::AutoGradMode with_grad(true);
    const Tensor input = x.detach().requires_grad_(true);
    return torch::autograd::grad({f(input)}, {input}, {output_grads[0]});
  });
  return y;
}

}  // namespace titanium::ops
