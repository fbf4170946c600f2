#include "titanium/comm/reduce_parts.h"

#include <ATen/ops/maximum.h>

#include "titanium/base/error.h"

namespace titanium::comm {

void reduce_parts(const Tensor& out, std::span<const Tensor> parts, Reduce op) {
  TI_ASSERT(!parts.empty());
  const bool narrow = out.scalar_type() == at::kBFloat16 || out.scalar_type() == at::kHalf;
  // A maximum needs no wider type.
  Tensor result = narrow && op != Reduce::kMax ? parts[0].to(at::kFloat) : out;
  result = result.view({-1});
  if (result.scalar_type() == out.scalar_type()) result.copy_(parts[0].view({-1}));
  for (const Tensor& part : parts.subspan(1)) {
    if (op == Reduce::kMax)
      at::maximum_out(result, result, part.view({-1}));
    else
      result.add_(part.view({-1}));
  }
  if (op == Reduce::kAvg) average_sum(result, static_cast<int64_t>(parts.size()));
  if (result.scalar_type() != out.scalar_type()) out.view({-1}).copy_(result);
}

void average_sum(const Tensor& sum, int64_t count) {
  if (sum.is_floating_point())
    sum.div_(count);
  else
    sum.div_(count, "trunc");
}

}  // namespace titanium::comm
