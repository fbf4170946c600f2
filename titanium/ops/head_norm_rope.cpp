#include "titanium/ops/head_norm_rope.h"

#include <ATen/ops/empty.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/launch_with_scratch.h"
#include "titanium/ops/rms_norm.h"

namespace titanium::ops {
namespace {

// Whether a kernel can read or write the array [B, S, H, E]: each token's heads are contiguous and aligned.
bool kernel_takes(const Tensor& x) {
  const int64_t word = 16 / x.element_size();
  return x.stride(3) == 1 && (x.size(2) == 1 || x.stride(2) == x.size(3)) && x.stride(1) % word == 0 &&
         x.stride(0) % word == 0 && kernels::head_norm_rope_takes(x.const_data_ptr());
}

bool uses_kernel(const HeadNorms& norms, RopePairs pairs, const Tensor& table_SE, const Tensors& arrays) {
  const Tensor &x = arrays[0], q_weight = norms.q.as_stored(), k_weight = norms.k.as_stored();
  // Positions of their own for each token are one long sequence: Note [Rows of the rope table].
  const bool one_sequence = table_rows(table_SE) != x.size(1);
  return pairs != RopePairs::kNone && uses_kernels(x) && uses_kernels(q_weight) &&
         q_weight.scalar_type() == k_weight.scalar_type() && kernels::has_head_norm_rope(element_type(x), x.size(-1)) &&
         table_SE.is_contiguous() && kernels::head_norm_rope_takes(table_SE.const_data_ptr()) &&
         std::ranges::all_of(arrays, [&](const Tensor& array) {
           return !array.defined() || (kernel_takes(array) && (!one_sequence || array.is_contiguous()));
         });
}

kernels::HeadStrides strides_of(const Tensor& x) {
  return x.is_contiguous() ? kernels::HeadStrides{} : kernels::HeadStrides{x.stride(1), x.stride(0)};
}

Tensor or_new(const Tensor& chosen, const Tensor& like) {
  return chosen.defined() ? chosen : at::empty(like.sizes(), like.options());
}

Rotated forward_kernel(const Tensor& q_BSHE, const Tensor& k_BSKE, const HeadNorms& norms, const Tensor& table_SE,
                       RopePairs pairs, UnnormalisedHeads& saved, const QueriesAndKeys& into) {
  const Tensor q_weight = norms.q.as_stored(), k_weight = norms.k.as_stored();
  const auto heads = [&](const Tensor& x, const Tensor& weight, const Tensor& y, Tensor& rstd) {
    rstd = at::empty({x.numel() / x.size(3), 1}, x.options().dtype(at::kFloat));
    return kernels::HeadNormRopeForwardArgs::Heads{.x = x.const_data_ptr(),
                                                   .weight = weight.const_data_ptr(),
                                                   .y = y.mutable_data_ptr(),
                                                   .rstd = rstd.mutable_data_ptr<float>(),
                                                   .count = x.size(2),
                                                   .x_strides = strides_of(x),
                                                   .y_strides = strides_of(y)};
  };
  const Rotated out = {or_new(into.q_BSHE, q_BSHE), or_new(into.k_BSKE, k_BSKE), {}, {}};
  saved = {q_BSHE, k_BSKE, {}, {}};
  launch(kernels::HeadNormRopeForwardArgs{.type = element_type(q_BSHE),
                                          .weight_type = element_type(q_weight),
                                          .q = heads(q_BSHE, q_weight, out.q_BSHE, saved.q_rstd),
                                          .k = heads(k_BSKE, k_weight, out.k_BSKE, saved.k_rstd),
                                          .head_dim = q_BSHE.size(3),
                                          .table = static_cast<const float*>(table_SE.const_data_ptr()),
                                          .tokens = q_BSHE.size(0) * q_BSHE.size(1),
                                          .seq_len = table_rows(table_SE),
                                          .eps = static_cast<float>(norms.eps),
                                          .neighbours = pairs == RopePairs::kAdjacent});
  return out;
}

// Over the gradients that were given, or to `into`.
Rotated backward_kernel(const Tensor& grad_q, const Tensor& grad_k, const HeadNorms& norms, const Tensor& table_SE,
                        RopePairs pairs, const UnnormalisedHeads& saved, bool with_amax, const QueriesAndKeys& into) {
  const Tensor q_weight = norms.q.as_stored(), k_weight = norms.k.as_stored();
  const auto amax = [&] { return with_amax ? zero_beside(grad_q) : Tensor(); };
  const auto place = [](const Tensor& chosen, const Tensor& grad) { return chosen.defined() ? chosen : grad; };
  const Rotated out = {place(into.q_BSHE, grad_q), place(into.k_BSKE, grad_k), amax(), amax()};
  const auto heads = [](const Tensor& grad, const Tensor& x, const Tensor& rstd, const Tensor& weight,
                        const Parameter::GradSum& dweight, const Tensor& dx, const Tensor& found) {
    return kernels::HeadNormRopeBackwardArgs::Heads{.dy = grad.const_data_ptr(),
                                                    .x = x.const_data_ptr(),
                                                    .rstd = rstd.const_data_ptr<float>(),
                                                    .weight = weight.const_data_ptr(),
                                                    .dx = dx.mutable_data_ptr(),
                                                    .dweight = dweight.sum.mutable_data_ptr(),
                                                    .accumulate_dweight = !dweight.is_first,
                                                    .count = grad.size(2),
                                                    .amax = float_memory(found),
                                                    .dy_strides = strides_of(grad),
                                                    .x_strides = strides_of(x),
                                                    .dx_strides = strides_of(dx)};
  };
  const Parameter::GradSum q_sum = norms.q.open_grad_sum(grad_q.device()),
                           k_sum = norms.k.open_grad_sum(grad_k.device());
  const kernels::HeadNormRopeBackwardArgs args{
      .type = element_type(grad_q),
      .weight_type = element_type(q_weight),
      .dweight_type = element_type(q_sum.sum),
      .q = heads(grad_q, saved.q_BSHE, saved.q_rstd, q_weight, q_sum, out.q_BSHE, out.q_amax),
      .k = heads(grad_k, saved.k_BSKE, saved.k_rstd, k_weight, k_sum, out.k_BSKE, out.k_amax),
      .head_dim = grad_q.size(3),
      .table = static_cast<const float*>(table_SE.const_data_ptr()),
      .scratch = nullptr,
      .tokens = grad_q.size(0) * grad_q.size(1),
      .seq_len = table_rows(table_SE),
      .neighbours = pairs == RopePairs::kAdjacent};
  launch_with_scratch(args, grad_q);
  return out;
}

Tensor rows_of_heads(const Tensor& x_BSHE) { return x_BSHE.flatten(0, 2); }

Tensor normalise(const Tensor& x_BSHE, const Parameter& weight, double eps, Tensor& rstd) {
  const RmsNormOutput out = rms_norm_forward(rows_of_heads(x_BSHE), weight, eps);
  rstd = out.rstd_T1;
  return out.y_TD.view_as(x_BSHE);
}

Tensor normalise_backward(const Tensor& grad_BSHE, const Tensor& x_BSHE, const Tensor& rstd, Parameter& weight) {
  return rms_norm_backward(rows_of_heads(grad_BSHE), rows_of_heads(x_BSHE), rstd, weight).view_as(grad_BSHE);
}

// Copied to where the caller wants them.
Rotated moved(const Rotated& found, const QueriesAndKeys& into) {
  if (!into.q_BSHE.defined()) return found;
  return {into.q_BSHE.copy_(found.q_BSHE), into.k_BSKE.copy_(found.k_BSKE), {}, {}};
}

}  // namespace

Rotated norm_and_rotate(const Tensor& q_BSHE, const Tensor& k_BSKE, const HeadNorms& norms, const Tensor& table_SE,
                        RopePairs pairs, UnnormalisedHeads& saved, const QueriesAndKeys& into) {
  if (uses_kernel(norms, pairs, table_SE, {q_BSHE, k_BSKE, into.q_BSHE, into.k_BSKE}))
    return forward_kernel(q_BSHE, k_BSKE, norms, table_SE, pairs, saved, into);
  saved = {q_BSHE, k_BSKE, {}, {}};
  const Tensor q = normalise(q_BSHE, norms.q, norms.eps, saved.q_rstd),
               k = normalise(k_BSKE, norms.k, norms.eps, saved.k_rstd);
  return moved(rotate(q, k, table_SE, /*inverse=*/false, /*with_amax=*/false, pairs), into);
}

Rotated norm_and_rotate_backward(const Tensor& grad_q_BSHE, const Tensor& grad_k_BSKE, const HeadNorms& norms,
                                 const Tensor& table_SE, RopePairs pairs, const UnnormalisedHeads& saved,
                                 bool with_amax, const QueriesAndKeys& into) {
  if (uses_kernel(norms, pairs, table_SE,
                  {grad_q_BSHE, grad_k_BSKE, saved.q_BSHE, saved.k_BSKE, into.q_BSHE, into.k_BSKE}))
    return backward_kernel(grad_q_BSHE, grad_k_BSKE, norms, table_SE, pairs, saved, with_amax, into);
  const auto given_up = [&](const Tensor& grad) { return into.q_BSHE.defined() ? grad.clone() : grad; };
  const Rotated back = rotate(given_up(grad_q_BSHE), given_up(grad_k_BSKE), table_SE, /*inverse=*/true,
                              /*with_amax=*/false, pairs);
  return moved({normalise_backward(back.q_BSHE, saved.q_BSHE, saved.q_rstd, norms.q),
                normalise_backward(back.k_BSKE, saved.k_BSKE, saved.k_rstd, norms.k),
                {},
                {}},
               into);
}

}  // namespace titanium::ops
