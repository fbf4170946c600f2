// What a diffusion transformer does around its matrix products: layer norms that are shifted and scaled, and outputs
// that are gated, by vectors that each sample has of its own. Shapes: B samples, S tokens, D model dim, I inputs,
// O outputs, M columns of a feed-forward, H heads, E head dim; D = H * E. Every function is one autograd node.
#pragma once

#include "titanium/ops/head_norm_rope.h"
#include "titanium/ops/record.h"

namespace titanium::ops {

// A linear layer: weight [out, in], bias [out] or null.
struct LinearLayer {
  Parameter& weight;
  Parameter* bias = nullptr;
};

// x W^T + b of [..., I]. The weights get their gradients also where x needs none. Saves x.
Tensor linear_with_bias(const Tensor& x, const LinearLayer& layer);
// out(silu(in(x))) of [B, I], likewise. Saves x and what silu gets.
Tensor embed_vector(const Tensor& x_BI, const LinearLayer& in, const LinearLayer& out);

// linear(silu(vec)) of each layer, cut into `count` vectors [B, D] each, one layer after the other. Saves vec.
Tensors modulation_vectors(const Tensor& vec_BD, const std::vector<LinearLayer>& layers, int64_t count);

// (1 + scale) * layer_norm(x) + shift: the norm has no weights of its own, and its eps is 1e-6.
struct ShiftAndScale {
  Tensor shift_BD, scale_BD;
};

// linear(modulated norm of x), [B, S, O]. Saves x, and its mean and rstd for each token; the normalised input is
// computed once more in the backward.
Tensor modulated_linear(const Tensor& x_BSD, const ShiftAndScale& modulation, const LinearLayer& layer);

// Queries, keys and values of attention, from one product with the modulated norm of x. Its outputs are 3 * D columns
// of queries, keys and values, then columns of something else, `rest`, if the layer has more. The heads of queries and
// keys are normalised and rotated in adjacent pairs by the table's rows [S, E/2]. Saves x as above and the product, of
// which `v` and `rest` are views.
struct ModulatedHeads {
  Tensor q_BSHE, k_BSHE, v_BSHE;
  Tensor rest_BSM;
};
ModulatedHeads modulated_heads(const Tensor& x_BSD, const ShiftAndScale& modulation, const LinearLayer& layer,
                               const HeadNorms& norms, const Tensor& table_SE, int64_t heads);

// residual + gate * linear(x). Saves x and the product.
Tensor gated_linear(const Tensor& x_BSI, const LinearLayer& layer, const Tensor& gate_BD, const Tensor& residual_BSD);
// x + gate * out(gelu(in(modulated norm of x))), with the tanh form of GELU. Saves x as above and both products.
Tensor gated_feed_forward(const Tensor& x_BSD, const ShiftAndScale& modulation, const Tensor& gate_BD,
                          const LinearLayer& in, const LinearLayer& out);
// residual + gate * linear(attended beside gelu(hidden)): the end of a block whose attention and feed-forward run
// beside each other. `attended` is [B, S, H, E]. Saves attended, hidden and the product.
Tensor gated_joint_output(const Tensor& attended_BSHE, const Tensor& hidden_BSM, const LinearLayer& layer,
                          const Tensor& gate_BD, const Tensor& residual_BSD);

// scale * the sum of (x - target)^2 over all elements, an fp64 scalar. The differences are taken in fp32 and kept.
Tensor squared_error(const Tensor& x, const Tensor& target, double scale);

}  // namespace titanium::ops
