// The GEMM that all matrix products go through.
#pragma once

#include "titanium/ops/record.h"

namespace titanium::ops {

// What the product and the matrix that is added to it are multiplied by.
struct SumFactors {
  double product = 1;
  double added = 1;
  bool are_one() const { return product == 1 && added == 1; }
};

// out = a b, or a b + added, where `added` may be out. Sums are in fp32 (fp64 for fp64) and rounded once to out's
// dtype, which may be wider than that of a and b; but a product that is added to `out` may be rounded before. With
// `factors`, which need one dtype for all matrices and an `added`, out = factors.product a b + factors.added added. On
// a GPU, 16-bit products without factors go to cuBLASLt with the algorithm that was fastest when they were tuned
// (gemm.h), others to ATen.
void multiply(const Tensor& out_MN, const Tensor& a_MK, const Tensor& b_KN, const Tensor& added_MN = {},
              const SumFactors& factors = {});

// out = a b + bias, where bias [N], of out's dtype, is added to every row: inside the product where cuBLASLt is taken.
void multiply_with_bias(const Tensor& out_MN, const Tensor& a_MK, const Tensor& b_KN, const Tensor& bias_N);

}  // namespace titanium::ops
