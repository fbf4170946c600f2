// Matrix products.
#pragma once

#include "titanium/ops/record.h"

namespace titanium::ops {

// out = a b, or a b + added, where `added` may be out. Sums are in fp32 (fp64 for fp64) and rounded once to out's
// dtype, which may be wider than that of a and b; but a product that is added to `out` may be rounded before. On a GPU,
// 16-bit products go to cuBLASLt with the algorithm that was fastest when they were tuned (gemm.h), others to ATen.
void multiply(const Tensor& out_MN, const Tensor& a_MK, const Tensor& b_KN, const Tensor& added_MN = {});

}  // namespace titanium::ops
