#include "titanium/ops/head_loss.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "titanium/ops/linear/linear.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {

Tensor head_loss(const Tensor& x_tD, const HeadLossArgs& args, const Tensor& labels_T, double scale) {
  const TraceScope scope("head_loss");
  const bool with_grad = needs_grad({x_tD});
  const c10::AutoGradMode no_grad(false);
  const CrossEntropyArgs entropy = {.scale = scale,
                                    .with_grad = with_grad,
                                    .first_column = args.weight.part.offset[0],
                                    .exchange = args.exchange,
                                    .loss_parallel = args.loss_parallel};
  const Tensor x_TD = args.exchange.gather(x_tD.detach())();
  Tensor loss = at::zeros({}, x_tD.options().dtype(at::kDouble));
  Tensor grad_x_TD = with_grad ? at::empty(x_TD.sizes(), x_TD.options()) : Tensor();
  const int64_t tokens = x_TD.size(0),
                chunk = cross_entropy_chunk(x_TD, args.weight.global_shape[0], args.weight.value.scalar_type());
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t count = std::min(chunk, tokens - first);
    const Tensor x = x_TD.narrow(0, first, count);
    const Tensor labels = labels_T.narrow(0, first, count);
    const Tensor grad = cross_entropy(linear_forward(x, args.weight), labels, entropy, loss);
    if (!with_grad) continue;
    accumulate_weight_grad(grad, x, args.weight);
    write_input_grad(grad_x_TD.narrow(0, first, count), grad, args.weight);
  }
  if (with_grad) {
    const Tensor grad_x_tD = args.exchange.reduce_scatter(grad_x_TD)();
    const c10::AutoGradMode with(true);
    record({x_tD}, {loss}, [grad_x_tD](const Tensors&) -> Tensors { return {grad_x_tD}; });
  }
  return loss;
}

}  // namespace titanium::ops
