// Attention with explicit scores: any device, dtype and head dims. Shapes are those of attend.h.
#pragma once

#include "titanium/ops/attention/attend.h"

namespace titanium::ops {

// As attend; memory grows with S * T.
Attended attend_by_definition(const Tensor& q_BSHE, const Tensor& k_BTKE, const Tensor& v_BTKV, const Visible& visible,
                              std::optional<double> scale = std::nullopt);
Tensors attend_by_definition_backward(const Tensor& grad_BSHV, const Tensor& q_BSHE, const Tensor& k_BTKE,
                                      const Tensor& v_BTKV, const Attended& attended, const Visible& visible,
                                      std::optional<double> scale = std::nullopt);

// Causal attention with a window, one stretch of queries after the other, each with the keys that it can see: the
// number of scores grows with S * window. S = T.
Attended attend_in_bands(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& v_BSKV, int64_t window,
                         std::optional<double> scale = std::nullopt);
Tensors attend_in_bands_backward(const Tensor& grad_BSHV, const Tensor& q_BSHE, const Tensor& k_BSKE,
                                 const Tensor& v_BSKV, const Attended& attended, int64_t window,
                                 std::optional<double> scale = std::nullopt);

// True where query i may see key j, [1 or B, 1, S, T].
Tensor visible_keys(int64_t batch, int64_t queries, int64_t keys, const Visible& visible, Device device);

// The given scale, or 1/sqrt(E).
double softmax_scale(const Tensor& q_BSHE, std::optional<double> scale);

}  // namespace titanium::ops
