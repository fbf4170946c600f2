// What a diffusion transformer does around its matrix products: layer norms that are shifted and scaled, and outputs
// that are gated, by vectors that each sample has of its own. Shapes: B samples, S tokens, D model dim, I inputs,
// O outputs, M columns of a feed-forward, H heads, E head dim; D = H * E. Every function is one autograd node.
#pragma once

#include <memory>

#include "titanium/ops/head_norm_rope.h"
#include "titanium/ops/modulated_norm.h"
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

// linear(modulated norm of x), [B, S, O]. Saves x, and its mean and rstd for each token; the normalised input is
// computed once more in the backward.
Tensor modulated_linear(const Tensor& x_BSD, const ShiftAndScale& modulation, const LinearLayer& layer);

// What one sequence of tokens gives to queries, keys and values.
struct HeadsOfTokens {
  Tensor x_BSD;
  ShiftAndScale modulation;
  LinearLayer layer;
  HeadNorms norms;
  Tensor table_SE;
};
// The columns of a product beside those of queries, keys and values. Whoever gets their gradient may leave it in rows
// of the whole product's gradient, behind `columns_before`; then it is not copied to them.
struct RestOfProduct {
  Tensor hidden_BSM;
  struct GradRows {
    int64_t columns_before;
    Tensor rows_BSO;
  };
  std::shared_ptr<GradRows> grad;
};
// Queries, keys and values of attention over all sequences one after another, each from one product with the modulated
// norm of x. Its outputs are 3 * D columns of queries, keys and values, then `rest`, if the layer of the only sequence
// has more. The heads of queries and keys are normalised and rotated in adjacent pairs by the table's rows [S, E/2].
// Saves x, mean and rstd of each token, and the products, of which `v` and `rest` of an only sequence are views.
struct ModulatedHeads {
  Tensor q_BTHE, k_BTHE, v_BTHE;
  RestOfProduct rest;
};
ModulatedHeads modulated_heads(const std::vector<HeadsOfTokens>& sequences, int64_t heads);

// residual + gate * linear(tokens of attended) for the sequences that attended together, one after another in T. Saves
// attended and the products.
struct GatedLinear {
  LinearLayer layer;
  Tensor gate_BD, residual_BSD;
};
Tensors gated_linears(const Tensor& attended_BTHE, const std::vector<GatedLinear>& sequences);
// x + gate * out(gelu(in(modulated norm of x))), with the tanh form of GELU. Saves x as above and both products.
Tensor gated_feed_forward(const Tensor& x_BSD, const ShiftAndScale& modulation, const Tensor& gate_BD,
                          const LinearLayer& in, const LinearLayer& out);
// residual + gate * linear(attended beside gelu(hidden)): the end of a block whose attention and feed-forward run
// beside each other. Saves attended, hidden and the product.
Tensor gated_joint_output(const Tensor& attended_BSHE, const RestOfProduct& hidden, const LinearLayer& layer,
                          const Tensor& gate_BD, const Tensor& residual_BSD);

// scale * the sum of (x - target)^2 over all elements, an fp64 scalar. The differences are taken in fp32 and kept.
Tensor squared_error(const Tensor& x, const Tensor& target, double scale);

}  // namespace titanium::ops
