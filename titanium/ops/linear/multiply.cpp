#include "titanium/ops/linear/multiply.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "titanium/base/error.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/gemm.h"

namespace titanium::ops {
namespace {

bool has_rows_or_columns(const Tensor& x) { return x.dim() == 2 && (x.stride(1) == 1 || x.stride(0) == 1); }

bool gemm_takes(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& added) {
  return uses_kernels(out) && a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16 && out.numel() > 0 &&
         a.numel() > 0 && out.stride(1) == 1 && (!added.defined() || added.stride(1) == 1) && has_rows_or_columns(a) &&
         has_rows_or_columns(b);
}

void multiply_with_aten(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& added,
                        const SumFactors& factors) {
  Tensor result = out;
  if (!factors.are_one()) {
    TI_ASSERT(added.defined() && added.scalar_type() == a.scalar_type() && out.scalar_type() == a.scalar_type());
    at::addmm_out(result, added, a, b, /*beta=*/factors.added, /*alpha=*/factors.product);
  } else if (out.scalar_type() == a.scalar_type()) {
    added.defined() ? at::addmm_out(result, added, a, b) : at::mm_out(result, a, b);
  } else if (a.is_cuda() && c10::elementSize(a.scalar_type()) == 2 && out.scalar_type() == at::kFloat) {
    added.defined() ? at::addmm_out(result, added, a, b, at::kFloat) : at::mm_out(result, a, b, at::kFloat);
  } else {
    const Tensor product = at::mm(a, b);
    if (added.defined() && !added.is_same(out)) result.copy_(added);
    added.defined() ? result.add_(product) : result.copy_(product);
  }
}

}  // namespace

void multiply(const Tensor& out_MN, const Tensor& a_MK, const Tensor& b_KN, const Tensor& added_MN,
              const SumFactors& factors) {
  if (!factors.are_one() || !gemm_takes(out_MN, a_MK, b_KN, added_MN)) {
    return multiply_with_aten(out_MN, a_MK, b_KN, added_MN, factors);
  }
  gemm({.out_MN = out_MN, .a_MK = a_MK, .b_KN = b_KN, .added_MN = added_MN});
}

void multiply_with_bias(const Tensor& out_MN, const Tensor& a_MK, const Tensor& b_KN, const Tensor& bias_N) {
  if (gemm_takes(out_MN, a_MK, b_KN, {}) && out_MN.scalar_type() == a_MK.scalar_type()) {
    return gemm({.out_MN = out_MN, .a_MK = a_MK, .b_KN = b_KN, .bias_N = bias_N});
  }
  multiply(out_MN, a_MK, b_KN);
  out_MN.add_(bias_N);
}

}  // namespace titanium::ops
