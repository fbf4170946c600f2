#include "titanium/optim/newton_schulz.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"

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
  for (int64_t i = 0; i < options.steps; ++i) {
    const Tensor gram_SS = at::mm(x_SL, x_SL.t());
    const Tensor update_SS = at::addmm(gram_SS, gram_SS, gram_SS, /*beta=*/b, /*alpha=*/c);
    x_SL = at::addmm(x_SL, update_SS, x_SL, /*beta=*/a);
  }
  return tall ? x_SL.t() : x_SL;
}

double newton_schulz_work(int64_t rows, int64_t columns) {
  const auto s = static_cast<double>(std::min(rows, columns)), l = static_cast<double>(std::max(rows, columns));
  return s * s * (2 * l + s);
}

}  // namespace titanium::optim
