#include "titanium/ops/modulation.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

constexpr double kNormEps = 1e-6;
constexpr const char* kGelu = "tanh";

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }
Tensor per_token(const Tensor& vector_BD) { return vector_BD.unsqueeze(1); }

// [..., I] -> [..., O]
Tensor apply(const LinearLayer& layer, const Tensor& x) {
  Shape shape = x.sizes().vec();
  shape.back() = layer.weight.part.shape[0];
  return linear_forward(rows_of(x), layer.weight, layer.bias).view(shape);
}

// Adds the gradients of weight and bias.
void accumulate(const LinearLayer& layer, const Tensor& grad_TO, const Tensor& x_TI) {
  accumulate_weight_grad(grad_TO, x_TI, layer.weight);
  accumulate_bias_grad(grad_TO, layer.bias);
}

// Also gives the gradient of x.
Tensor apply_backward(const LinearLayer& layer, const Tensor& grad, const Tensor& x) {
  const Tensor grad_TO = rows_of(grad);
  accumulate(layer, grad_TO, rows_of(x));
  return linear_input_grad(grad_TO, layer.weight).view(x.sizes());
}

// What the backward of a modulated norm needs.
struct ModulatedNorm {
  Tensor x_BSD, mean, rstd;
  ShiftAndScale modulation;

  Tensor modulate(const Tensor& normalised_BSD) const {
    return at::addcmul(per_token(modulation.shift_BD), normalised_BSD, per_token(modulation.scale_BD + 1));
  }
};

Tensor normalise(const Tensor& x_BSD, Tensor* mean, Tensor* rstd) {
  auto [normalised, means, rstds] = at::native_layer_norm(x_BSD, {x_BSD.size(-1)}, {}, {}, kNormEps);
  if (mean != nullptr) *mean = means, *rstd = rstds;
  return normalised;
}

Tensor modulated_norm(const Tensor& x_BSD, const ShiftAndScale& modulation, ModulatedNorm& saved) {
  saved = {x_BSD.detach(), {}, {}, {modulation.shift_BD.detach(), modulation.scale_BD.detach()}};
  return saved.modulate(normalise(x_BSD, &saved.mean, &saved.rstd));
}

// Gradients of x, shift and scale, in this order, from that of the modulated norm; `backward_of` gets the modulated
// norm once more and gives its gradient.
template <typename BackwardOf>
Tensors modulated_norm_backward(const ModulatedNorm& saved, BackwardOf&& backward_of) {
  const Tensor normalised = normalise(saved.x_BSD, nullptr, nullptr);
  const Tensor grad = backward_of(saved.modulate(normalised));
  const Tensor scale_grad = (grad * normalised).sum(1), shift_grad = grad.sum(1);
  const Tensor grad_norm = grad * per_token(saved.modulation.scale_BD + 1);
  const Tensor x_grad = std::get<0>(at::native_layer_norm_backward(
      grad_norm, saved.x_BSD, {saved.x_BSD.size(-1)}, saved.mean, saved.rstd, {}, {}, {true, false, false}));
  return {x_grad, shift_grad, scale_grad};
}

Tensor add_gated(const Tensor& residual_BSD, const Tensor& gate_BD, const Tensor& x_BSD) {
  return at::addcmul(residual_BSD, x_BSD, per_token(gate_BD));
}

Tensor or_zeros(const Tensor& grad, const Tensor& like) { return grad.defined() ? grad : at::zeros_like(like); }

}  // namespace

Tensor linear_with_bias(const Tensor& x, const LinearLayer& layer) {
  const TraceScope scope("linear_with_bias");
  Tensor y;
  {
    const c10::AutoGradMode no_grad(false);
    y = apply(layer, x);
  }
  const bool x_needs_grad = needs_grad({x});
  record({x, layer.weight.value}, {y}, [=, x = x.detach()](const Tensors& grads) -> Tensors {
    if (x_needs_grad) return {apply_backward(layer, grads[0], x), Tensor()};
    accumulate(layer, rows_of(grads[0]), rows_of(x));
    return {Tensor(), Tensor()};  // Note [Gradients are ours]
  });
  return y;
}

Tensor embed_vector(const Tensor& x_BI, const LinearLayer& in, const LinearLayer& out) {
  const TraceScope scope("embed_vector");
  Tensor hidden, y;
  {
    const c10::AutoGradMode no_grad(false);
    hidden = apply(in, x_BI);
    y = apply(out, at::silu(hidden));
  }
  const bool x_needs_grad = needs_grad({x_BI});
  record({x_BI, in.weight.value}, {y}, [=, x = x_BI.detach()](const Tensors& grads) -> Tensors {
    const Tensor grad_hidden = at::silu_backward(apply_backward(out, grads[0], at::silu(hidden)), hidden);
    if (x_needs_grad) return {apply_backward(in, grad_hidden, x), Tensor()};
    accumulate(in, grad_hidden, x);
    return {Tensor(), Tensor()};
  });
  return y;
}

Tensors modulation_vectors(const Tensor& vec_BD, const std::vector<LinearLayer>& layers, int64_t count) {
  const TraceScope scope("modulation_vectors");
  Tensors vectors;
  {
    const c10::AutoGradMode no_grad(false);
    const Tensor active = at::silu(vec_BD);
    for (const LinearLayer& layer : layers) {
      for (const Tensor& vector : apply(layer, active).chunk(count, 1)) vectors.push_back(vector.contiguous());
    }
  }
  record({vec_BD}, vectors, [=, vec = vec_BD.detach(), width = vectors[0].size(1)](const Tensors& grads) -> Tensors {
    const Tensor none = at::empty({vec.size(0), width}, vec.options()), active = at::silu(vec);
    Tensor sum = at::zeros_like(active);
    for (size_t first = 0; const LinearLayer& layer : layers) {
      Tensors parts;
      for (int64_t i = 0; i < count; ++i) parts.push_back(or_zeros(grads[first++], none));
      sum.add_(apply_backward(layer, at::cat(parts, 1), active));
    }
    return {at::silu_backward(sum, vec)};
  });
  return vectors;
}

Tensor modulated_linear(const Tensor& x_BSD, const ShiftAndScale& modulation, const LinearLayer& layer) {
  const TraceScope scope("modulated_linear");
  ModulatedNorm saved;
  Tensor y;
  {
    const c10::AutoGradMode no_grad(false);
    y = apply(layer, modulated_norm(x_BSD, modulation, saved));
  }
  record({x_BSD, modulation.shift_BD, modulation.scale_BD}, {y}, [saved, layer](const Tensors& grads) -> Tensors {
    return modulated_norm_backward(saved, [&](const Tensor& x) { return apply_backward(layer, grads[0], x); });
  });
  return y;
}

ModulatedHeads modulated_heads(const Tensor& x_BSD, const ShiftAndScale& modulation, const LinearLayer& layer,
                               const HeadNorms& norms, const Tensor& table_SE, int64_t heads) {
  const TraceScope scope("modulated_heads");
  const int64_t dim = x_BSD.size(2);
  const auto part = [=](const Tensor& y, int64_t i) { return y.narrow(2, i * dim, dim).unflatten(2, {heads, -1}); };
  const auto rest = [=](const Tensor& y) { return y.narrow(2, 3 * dim, y.size(2) - 3 * dim); };
  ModulatedNorm saved;
  UnnormalisedHeads unnormalised;
  Tensor y;
  ModulatedHeads found;
  {
    const c10::AutoGradMode no_grad(false);
    y = apply(layer, modulated_norm(x_BSD, modulation, saved));
    const Rotated rotated =
        norm_and_rotate(part(y, 0), part(y, 1), norms, table_SE, RopePairs::kAdjacent, unnormalised);
    found = {rotated.q_BSHE, rotated.k_BSKE, part(y, 2).detach(), rest(y).detach()};
  }
  record({x_BSD, modulation.shift_BD, modulation.scale_BD}, {found.q_BSHE, found.k_BSHE, found.v_BSHE, found.rest_BSM},
         [=, sizes = y.sizes().vec(), options = y.options()](const Tensors& grads) -> Tensors {
           const Tensor grad_y = at::empty(sizes, options);
           const Rotated back = norm_and_rotate_backward(own(grads[0]), own(grads[1]), norms, table_SE,
                                                         RopePairs::kAdjacent, unnormalised, /*with_amax=*/false);
           part(grad_y, 0).copy_(back.q_BSHE);
           part(grad_y, 1).copy_(back.k_BSKE);
           part(grad_y, 2).copy_(grads[2]);
           if (sizes[2] > 3 * dim) rest(grad_y).copy_(grads[3]);
           return modulated_norm_backward(saved, [&](const Tensor& x) { return apply_backward(layer, grad_y, x); });
         });
  return found;
}

Tensor gated_linear(const Tensor& x_BSI, const LinearLayer& layer, const Tensor& gate_BD, const Tensor& residual_BSD) {
  const TraceScope scope("gated_linear");
  Tensor product, y;
  {
    const c10::AutoGradMode no_grad(false);
    product = apply(layer, x_BSI);
    y = add_gated(residual_BSD, gate_BD, product);
  }
  record({x_BSI, gate_BD, residual_BSD}, {y},
         [=, x = x_BSI.detach(), gate = gate_BD.detach()](const Tensors& grads) -> Tensors {
           const Tensor& grad = grads[0];
           const Tensor gate_grad = (grad * product).sum(1);
           return {apply_backward(layer, grad * per_token(gate), x), gate_grad, grad};
         });
  return y;
}

Tensor gated_feed_forward(const Tensor& x_BSD, const ShiftAndScale& modulation, const Tensor& gate_BD,
                          const LinearLayer& in, const LinearLayer& out) {
  const TraceScope scope("gated_feed_forward");
  ModulatedNorm saved;
  Tensor hidden, product, y;
  {
    const c10::AutoGradMode no_grad(false);
    hidden = apply(in, modulated_norm(x_BSD, modulation, saved));
    product = apply(out, at::gelu(hidden, kGelu));
    y = add_gated(x_BSD, gate_BD, product);
  }
  record({x_BSD, modulation.shift_BD, modulation.scale_BD, gate_BD}, {y},
         [=, gate = gate_BD.detach()](const Tensors& grads) -> Tensors {
           const Tensor& grad = grads[0];
           const Tensor gate_grad = (grad * product).sum(1);
           const Tensor grad_active = apply_backward(out, grad * per_token(gate), at::gelu(hidden, kGelu));
           const Tensor grad_hidden = at::gelu_backward(grad_active, hidden, kGelu);
           Tensors found =
               modulated_norm_backward(saved, [&](const Tensor& x) { return apply_backward(in, grad_hidden, x); });
           found[0].add_(grad);
           found.push_back(gate_grad);
           return found;
         });
  return y;
}

Tensor gated_joint_output(const Tensor& attended_BSHE, const Tensor& hidden_BSM, const LinearLayer& layer,
                          const Tensor& gate_BD, const Tensor& residual_BSD) {
  const TraceScope scope("gated_joint_output");
  const int64_t dim = residual_BSD.size(2), columns = hidden_BSM.size(2);
  const auto beside_each_other = [=](const Tensor& attended, const Tensor& hidden) {
    const Tensor joint = at::empty({hidden.size(0), hidden.size(1), dim + columns}, hidden.options());
    joint.narrow(2, 0, dim).copy_(attended.flatten(2));
    Tensor active = joint.narrow(2, dim, columns);
    at::gelu_out(active, hidden, kGelu);
    return joint;
  };
  Tensor product, y;
  {
    const c10::AutoGradMode no_grad(false);
    product = apply(layer, beside_each_other(attended_BSHE, hidden_BSM));
    y = add_gated(residual_BSD, gate_BD, product);
  }
  record({attended_BSHE, hidden_BSM, gate_BD, residual_BSD}, {y},
         [=, attended = attended_BSHE.detach(), hidden = hidden_BSM.detach(),
          gate = gate_BD.detach()](const Tensors& grads) -> Tensors {
           const Tensor& grad = grads[0];
           const Tensor gate_grad = (grad * product).sum(1);
           const Tensor joint_grad = apply_backward(layer, grad * per_token(gate), beside_each_other(attended, hidden));
           const Tensor hidden_grad = at::gelu_backward(joint_grad.narrow(2, dim, columns), hidden, kGelu);
           return {joint_grad.narrow(2, 0, dim).unflatten(2, {attended.size(2), -1}), hidden_grad, gate_grad, grad};
         });
  return y;
}

Tensor squared_error(const Tensor& x, const Tensor& target, double scale) {
  const TraceScope scope("squared_error");
  Tensor difference, loss;
  {
    const c10::AutoGradMode no_grad(false);
    difference = x.to(at::kFloat) - target.to(at::kFloat);
    loss = difference.square().sum(at::kDouble) * scale;
  }
  record({x}, {loss}, [difference, scale, dtype = x.scalar_type()](const Tensors& grads) -> Tensors {
    return {(difference * (grads[0] * (2 * scale))).to(dtype)};
  });
  return loss;
}

}  // namespace titanium::ops
