#include "titanium/ops/copy_tensors.h"

#include <c10/core/GradMode.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

kernels::CopyTensor describe(const Tensor& to, const Tensor& from) {
  const bool one_row = to.is_contiguous() && from.is_contiguous();
  const int64_t rows = one_row ? 1 : to.size(0);
  return {.source = from.const_data_ptr(),
          .target = to.data_ptr(),
          .rows = rows,
          .row_elements = to.numel() / rows,
          .source_stride = one_row ? 0 : from.stride(0),
          .target_stride = one_row ? 0 : to.stride(0),
          .source_type = element_type(from),
          .target_type = element_type(to),
          .first_chunk = 0};
}

template <typename Fallback>
void launch_or(const Tensors& to, const Tensors& from, bool accumulate, const Fallback& fallback) {
  const c10::AutoGradMode no_grad(false);
  std::vector<kernels::CopyTensor> copies;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].numel() == 0) continue;
    if (uses_kernels(to[i]) && uses_kernels(from[i])) {
      copies.push_back(describe(to[i], from[i]));
    } else {
      fallback(to[i], from[i]);
    }
  }
  if (!copies.empty()) launch_copies(copies, accumulate);
}

}  // namespace

void copy_tensors(const Tensors& to, const Tensors& from) {
  launch_or(to, from, false, [](const Tensor& a, const Tensor& b) { a.copy_(b, /*non_blocking=*/true); });
}

void add_tensors(const Tensors& to, const Tensors& from) {
  launch_or(to, from, true, [](const Tensor& a, const Tensor& b) { a.add_(b); });
}

}  // namespace titanium::ops
