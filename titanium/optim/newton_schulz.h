// Orthogonalisation of a matrix by a polynomial iteration.
#pragma once

#include <array>

#include "titanium/tensor/tensor.h"

namespace titanium::optim {

struct NewtonSchulzOptions {
  int64_t steps = 5;
  // What the products are computed in. bfloat16 is enough for training; float32 is for comparisons.
  Dtype dtype = at::kBFloat16;
  double eps = 1e-7;  // the least norm that the matrix is divided by
  // Coefficients of the quintic a X + b (X X^T) X + c (X X^T)^2 X. These make small singular values grow fastest;
  // singular values end between about 0.7 and 1.2, not at 1.
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
};

// The matrix with the singular vectors of `matrix_MN` and singular values near 1, in options.dtype, on its device. A
// matrix of zeros stays one.
Tensor orthogonalize(const Tensor& matrix_MN, const NewtonSchulzOptions& options);

// Operations of one iteration, up to a factor: s^2 (2 l + s) with the short and the long side.
double newton_schulz_work(int64_t rows, int64_t columns);

}  // namespace titanium::optim
