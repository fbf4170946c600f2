#include "titanium/ops/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

#include <numbers>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

Tensor scaled_frequencies(const Tensor& frequencies, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_position);
  const Tensor wavelength = at::reciprocal(frequencies) * (2 * std::numbers::pi);
  const Tensor stretched = frequencies / scaling.factor;
  const double band = scaling.high_frequency_factor - scaling.low_frequency_factor;
  // With equal factors (Llama 4) there is no band between the two, and nothing to interpolate.
  const Tensor smooth = band == 0 ? at::ones_like(frequencies)
                                  : (at::reciprocal(wavelength) * original - scaling.low_frequency_factor) / band;
  const Tensor interpolated = (1 - smooth) * stretched + smooth * frequencies;
  const Tensor is_low = wavelength > original / scaling.low_frequency_factor;
  const Tensor is_high = wavelength < original / scaling.high_frequency_factor;
  return at::where(is_low, stretched, at::where(is_high, frequencies, interpolated));
}

// The pair of a head whose frequency turns so many times within the original context; between pairs as a fraction.
double pair_that_turns(double times, int64_t head_dim, double theta, const YarnScaling& scaling) {
  const auto context = static_cast<double>(scaling.original_max_position);
  return static_cast<double>(head_dim) * std::log(context / (times * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

Tensor scaled_frequencies(const Tensor& frequencies, int64_t head_dim, double theta, const YarnScaling& scaling) {
  double low = pair_that_turns(scaling.beta_fast, head_dim, theta, scaling);
  double high = pair_that_turns(scaling.beta_slow, head_dim, theta, scaling);
  if (scaling.whole_bounds) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;
  const Tensor stays = 1 - ((at::arange(head_dim / 2, at::kFloat) - low) / (high - low)).clamp_(0, 1);
  return frequencies / scaling.factor * (1 - stays) + frequencies * stays;
}

// On the CPU, so that all devices get the same bits.
Tensor plain_frequencies(int64_t head_dim, double theta) {
  const Tensor exponents = at::arange(0, head_dim, 2, at::kFloat) / static_cast<double>(head_dim);
  return at::reciprocal(at::pow(theta, exponents));
}

Tensor table_of(const Tensor& frequencies, int64_t positions) {
  const Tensor angles = at::outer(at::arange(positions, at::kFloat), frequencies);
  return at::polar(at::ones_like(angles), angles);
}

void rotate_in_place(const Rotated& rotated, const Tensor& table_SE, bool inverse, RopePairs pairs) {
  const Tensor &q_BSHE = rotated.q_BSHE, &k_BSKE = rotated.k_BSKE;
  const int64_t q_heads = q_BSHE.size(2), k_heads = k_BSKE.size(2), head_dim = q_BSHE.size(3);
  launch(kernels::RopeArgs{.type = element_type(q_BSHE),
                           .q = q_BSHE.mutable_data_ptr(),
                           .k = k_BSKE.mutable_data_ptr(),
                           .q_row_stride = q_heads * head_dim,
                           .k_row_stride = k_heads * head_dim,
                           .q_heads = q_heads,
                           .k_heads = k_heads,
                           .head_dim = head_dim,
                           .table = static_cast<const float*>(table_SE.const_data_ptr()),
                           .tokens = q_BSHE.size(0) * q_BSHE.size(1),
                           .seq_len = table_rows(table_SE),
                           .inverse = inverse,
                           .halves = pairs == RopePairs::kHalves,
                           .q_amax = float_memory(rotated.q_amax),
                           .k_amax = float_memory(rotated.k_amax)});
}

}  // namespace

Tensor rope_table(int64_t head_dim, int64_t positions, double theta, const std::optional<RopeScaling>& scaling,
                  Device device) {
  Tensor frequencies = plain_frequencies(head_dim, theta);
  if (scaling) frequencies = scaled_frequencies(frequencies, *scaling);
  return table_of(frequencies, positions).to(device);
}

double yarn_concentration(double factor, double mscale) { return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1; }

Tensor rope_table(int64_t head_dim, int64_t positions, double theta, const YarnScaling& scaling, Device device) {
  const Tensor table =
      table_of(scaled_frequencies(plain_frequencies(head_dim, theta), head_dim, theta, scaling), positions);
  if (scaling.concentration != 1.0) at::view_as_real(table).mul_(scaling.concentration);
  return table.to(device);
}

Tensor apply_rope(const Tensor& x_BSHE, const Tensor& table_SE, bool inverse, RopePairs pairs) {
  const auto sizes = x_BSHE.sizes();
  const bool halves = pairs == RopePairs::kHalves;
  const Tensor x = x_BSHE.to(at::kFloat).contiguous();
  const Tensor parts = halves ? x.reshape({sizes[0], sizes[1], sizes[2], 2, -1}).transpose(3, 4).contiguous()
                              : x.reshape({sizes[0], sizes[1], sizes[2], -1, 2});
  const Tensor table = (inverse ? table_SE.conj() : table_SE).unsqueeze(-2);
  const Tensor rotated = at::view_as_real(at::view_as_complex(parts) * table);
  return (halves ? rotated.transpose(3, 4) : rotated).flatten(3).to(x_BSHE.scalar_type());
}

Rotated rotate(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& table_SE, bool inverse, bool with_amax,
               RopePairs pairs) {
  if (pairs == RopePairs::kNone) return {q_BSHE, k_BSKE, {}, {}};
  if (!uses_kernels(q_BSHE)) {
    return {apply_rope(q_BSHE, table_SE, inverse, pairs), apply_rope(k_BSKE, table_SE, inverse, pairs), {}, {}};
  }
  const auto amax = [&] { return with_amax ? zero_beside(q_BSHE) : Tensor(); };
  const Rotated rotated = {q_BSHE.contiguous(), k_BSKE.contiguous(), amax(), amax()};
  rotate_in_place(rotated, table_SE.contiguous(), inverse, pairs);
  return rotated;
}

}  // namespace titanium::ops
