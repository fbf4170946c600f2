#include "titanium/ops/modulation.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "titanium/ops/gate.h"
#include "titanium/ops/gelu.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

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
    const auto found = modulated_norm_backward(apply_backward(layer, grads[0], modulated_norm_again(saved)), saved);
    return {found.x_BSD, found.shift_BD, found.scale_BD};
  });
  return y;
}

namespace {

// A sequence of modulated_heads, and what its backward needs.
struct SequenceOfHeads {
  HeadsOfTokens given;
  ModulatedNorm norm;
  UnnormalisedHeads unnormalised;
  int64_t first_token;
  Shape shape;  // of the product, [B, S, O]

  int64_t tokens() const { return shape[1]; }
  int64_t dim() const { return norm.x_BSD.size(2); }
  // Queries, keys or values, as columns of the product or of its gradient.
  Tensor part(const Tensor& y_BSO, int64_t i, int64_t heads) const {
    return y_BSO.narrow(2, i * dim(), dim()).unflatten(2, {heads, -1});
  }
  Tensor rest(const Tensor& y_BSO) const { return y_BSO.narrow(2, 3 * dim(), shape[2] - 3 * dim()); }
  Tensor of_all(const Tensor& x_BTHE) const { return x_BTHE.narrow(1, first_token, tokens()); }
};

// The gradient of the product, in which that of the rest may already be.
Tensor grad_of_product(const SequenceOfHeads& sequence, const RestOfProduct::GradRows& rows, const Tensor& grad_rest,
                       const Tensor& like) {
  const Tensor& ready = rows.rows_BSO;
  if (ready.defined() && grad_rest.defined() && sequence.rest(ready).const_data_ptr() == grad_rest.const_data_ptr()) {
    return ready;
  }
  const Tensor grad = at::empty(sequence.shape, like.options());
  if (sequence.rest(grad).numel() > 0) sequence.rest(grad).copy_(grad_rest);
  return grad;
}

// Gradients of x, shift and scale.
Tensors heads_backward(const SequenceOfHeads& sequence, const Tensor& grad_BSO, const Tensors& grads, int64_t heads) {
  const HeadsOfTokens& given = sequence.given;
  norm_and_rotate_backward(sequence.of_all(grads[0]), sequence.of_all(grads[1]), given.norms, given.table_SE,
                           RopePairs::kAdjacent, sequence.unnormalised, /*with_amax=*/false,
                           {sequence.part(grad_BSO, 0, heads), sequence.part(grad_BSO, 1, heads)});
  sequence.part(grad_BSO, 2, heads).copy_(sequence.of_all(grads[2]));
  const auto found = modulated_norm_backward(apply_backward(given.layer, grad_BSO, modulated_norm_again(sequence.norm)),
                                             sequence.norm);
  return {found.x_BSD, found.shift_BD, found.scale_BD};
}

}  // namespace

ModulatedHeads modulated_heads(const std::vector<HeadsOfTokens>& sequences, int64_t heads) {
  const TraceScope scope("modulated_heads");
  const bool joint = sequences.size() > 1;
  std::vector<SequenceOfHeads> parts;
  ModulatedHeads found;
  Tensors inputs;
  {
    const c10::AutoGradMode no_grad(false);
    int64_t tokens = 0;
    for (const HeadsOfTokens& given : sequences) {
      const Tensor& x = given.x_BSD;
      parts.push_back({given, {}, {}, tokens, {x.size(0), x.size(1), given.layer.weight.part.shape[0]}});
      inputs.insert(inputs.end(), {x, given.modulation.shift_BD, given.modulation.scale_BD});
      tokens += x.size(1);
    }
    const Tensor& x = sequences[0].x_BSD;
    const auto all_tokens = [&] { return at::empty({x.size(0), tokens, heads, x.size(2) / heads}, x.options()); };
    if (joint) found.q_BTHE = all_tokens(), found.k_BTHE = all_tokens(), found.v_BTHE = all_tokens();
    for (SequenceOfHeads& part : parts) {
      HeadsOfTokens& given = part.given;
      const Tensor y = apply(given.layer, modulated_norm(given.x_BSD, given.modulation, part.norm));
      const QueriesAndKeys into =
          joint ? QueriesAndKeys{part.of_all(found.q_BTHE), part.of_all(found.k_BTHE)} : QueriesAndKeys{};
      const Rotated rotated = norm_and_rotate(part.part(y, 0, heads), part.part(y, 1, heads), given.norms,
                                              given.table_SE, RopePairs::kAdjacent, part.unnormalised, into);
      given.x_BSD = Tensor(), given.modulation = {};  // the norm has them
      if (joint) {
        part.of_all(found.v_BTHE).copy_(part.part(y, 2, heads));
      } else {
        found = {rotated.q_BSHE, rotated.k_BSKE, part.part(y, 2, heads).detach(), {part.rest(y).detach(), nullptr}};
      }
    }
  }
  Tensors outputs = {found.q_BTHE, found.k_BTHE, found.v_BTHE};
  if (!joint) outputs.push_back(found.rest.hidden_BSM);
  const auto rows = std::make_shared<RestOfProduct::GradRows>();
  rows->columns_before = 3 * inputs[0].size(2);
  found.rest.grad = rows;
  record(inputs, outputs, [parts, rows, heads, joint](const Tensors& grads) -> Tensors {
    Tensors of_inputs;
    for (const SequenceOfHeads& part : parts) {
      const Tensor grad = grad_of_product(part, *rows, joint ? Tensor() : grads[3], grads[0]);
      rows->rows_BSO = Tensor();
      for (const Tensor& one : heads_backward(part, grad, grads, heads)) of_inputs.push_back(one);
    }
    return of_inputs;
  });
  return found;
}

Tensors gated_linears(const Tensor& attended_BTHE, const std::vector<GatedLinear>& sequences) {
  const TraceScope scope("gated_linears");
  struct Part {
    LinearLayer layer;
    Tensor gate_BD, product;
    int64_t first, tokens;
    // Contiguous rows of its tokens.
    Tensor of(const Tensor& attended) const { return rows_of(attended.narrow(1, first, tokens).flatten(2)); }
  };
  std::vector<Part> parts;
  Tensors inputs = {attended_BTHE}, outputs;
  {
    const c10::AutoGradMode no_grad(false);
    int64_t first = 0;
    for (const auto& [layer, gate, residual] : sequences) {
      Part part{layer, gate.detach(), {}, first, residual.size(1)};
      part.product = apply(layer, part.of(attended_BTHE)).view(residual.sizes());
      outputs.push_back(add_gated(residual, part.gate_BD, part.product));
      inputs.insert(inputs.end(), {gate, residual});
      first += part.tokens;
      parts.push_back(std::move(part));
    }
  }
  record(inputs, outputs, [parts, attended = attended_BTHE.detach()](const Tensors& grads) -> Tensors {
    const Tensor grad_attended = at::empty_like(attended);
    Tensors found = {grad_attended};
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      const Tensor grad = or_zeros(grads[i], part.product);
      const GatedGrads gated = gate_backward(grad, part.product, part.gate_BD);
      const Tensor grad_rows = apply_backward(part.layer, gated.x_BSD, part.of(attended));
      const Tensor place = grad_attended.narrow(1, part.first, part.tokens);
      place.copy_(grad_rows.view(place.sizes()));
      found.insert(found.end(), {gated.gate_BD, grad});
    }
    return found;
  });
  return outputs;
}

Tensor gated_feed_forward(const Tensor& x_BSD, const ShiftAndScale& modulation, const Tensor& gate_BD,
                          const LinearLayer& in, const LinearLayer& out) {
  const TraceScope scope("gated_feed_forward");
  ModulatedNorm saved;
  Tensor hidden, product, y;
  {
    const c10::AutoGradMode no_grad(false);
    hidden = apply(in, modulated_norm(x_BSD, modulation, saved));
    product = apply(out, gelu(hidden));
    y = add_gated(x_BSD, gate_BD, product);
  }
  record({x_BSD, modulation.shift_BD, modulation.scale_BD, gate_BD}, {y},
         [=, gate = gate_BD.detach()](const Tensors& grads) -> Tensors {
           const GatedGrads gated = gate_backward(grads[0], product, gate);
           const Tensor grad_hidden = apply_backward(out, gated.x_BSD, gelu(hidden));
           write_gelu_backward(grad_hidden, grad_hidden, hidden);
           const auto found = modulated_norm_backward(apply_backward(in, grad_hidden, modulated_norm_again(saved)),
                                                      saved, /*around_BSD=*/grads[0]);
           return {found.x_BSD, found.shift_BD, found.scale_BD, gated.gate_BD};
         });
  return y;
}

Tensor gated_joint_output(const Tensor& attended_BSHE, const RestOfProduct& rest, const LinearLayer& layer,
                          const Tensor& gate_BD, const Tensor& residual_BSD) {
  const TraceScope scope("gated_joint_output");
  const int64_t dim = residual_BSD.size(2), columns = rest.hidden_BSM.size(2);
  const auto beside_each_other = [=](const Tensor& attended, const Tensor& hidden) {
    const Tensor joint = at::empty({hidden.size(0), hidden.size(1), dim + columns}, hidden.options());
    joint.narrow(2, 0, dim).copy_(attended.flatten(2));
    write_gelu(joint.narrow(2, dim, columns), hidden);
    return joint;
  };
  Tensor product, y;
  {
    const c10::AutoGradMode no_grad(false);
    product = apply(layer, beside_each_other(attended_BSHE, rest.hidden_BSM));
    y = add_gated(residual_BSD, gate_BD, product);
  }
  record({attended_BSHE, rest.hidden_BSM, gate_BD, residual_BSD}, {y},
         [=, attended = attended_BSHE.detach(), hidden = rest.hidden_BSM.detach(), gate = gate_BD.detach(),
          rows = rest.grad](const Tensors& grads) -> Tensors {
           const GatedGrads gated = gate_backward(grads[0], product, gate);
           const Tensor joint_grad = apply_backward(layer, gated.x_BSD, beside_each_other(attended, hidden));
           const int64_t before = rows == nullptr ? 0 : rows->columns_before;
           const Tensor grad_rows = at::empty({hidden.size(0), hidden.size(1), before + columns}, hidden.options());
           const Tensor hidden_grad = grad_rows.narrow(2, before, columns);
           write_gelu_backward(hidden_grad, joint_grad.narrow(2, dim, columns), hidden);
           if (rows != nullptr) rows->rows_BSO = grad_rows;
           return {joint_grad.narrow(2, 0, dim).unflatten(2, {attended.size(2), -1}), hidden_grad, gated.gate_BD,
                   grads[0]};
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
