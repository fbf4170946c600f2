#include "titanium/optim/newton_schulz.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/ops/linear/multiply.h"

namespace titanium::optim {

// Legend: S the short side, L the long one.
Tensor orthogonalize(const Tensor& matrix_MN, const NewtonSchulzOptions& options) {
  TI_ASSERT(matrix_MN.dim() == 2);
  const c10::NoGradGuard no_grad;
  const auto [a, b, c] = options.coefficients;
  const bool tall = matrix_MN.size(0) > matrix_MN.size(1);
  Tensor x_SL = matrix_MN.to(options.dtype);
  if (tall) x_SL = x_SL.t();
  x_SL = x_SL.div(at::linalg_vector_norm(x_SL).clamp_min_(options.eps));
  const int64_t s = x_SL.size(0);
  const Tensor gram_SS = at::empty({s, s}, x_SL.options()), update_SS = at::empty_like(gram_SS);
  for (int64_t i = 0; i < options.steps; ++i) {
    const Tensor next_SL = at::empty(x_SL.sizes(), x_SL.options());
    ops::multiply(gram_SS, x_SL, x_SL.t());
    ops::multiply(update_SS, gram_SS, gram_SS, gram_SS, {.product = c, .added = b});
    ops::multiply(next_SL, update_SS, x_SL, x_SL, {.added = a});
    x_SL = next_SL;
  }
  return tall ? x_SL.t() : x_SL;
}

double newton_schulz_work(int64_t rows, int64_t columns) {
  const auto s = static_cast<double>(std::min(rows, columns)), l = static_cast<double>(std::max(rows, columns));
  return s * s * (2 * l + s);
}

}  // namespace titanium::optim
