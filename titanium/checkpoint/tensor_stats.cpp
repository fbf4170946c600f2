#include "titanium/checkpoint/tensor_stats.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>

#include <limits>

#include "titanium/checkpoint/boxes.h"

namespace titanium::checkpoint {

TensorStats stats_of(const WeightsSource& source, const std::string& name) {
  const SourceTensor& tensor = source.tensor(name);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TensorStats stats{.min = kInfinity, .max = -kInfinity};
  double sum = 0;
  int64_t finite = 0;
  for_each_slice(tensor.shape, tensor.dtype, int64_t{16} << 20, [&](const Box& box) {
    const Tensor stored = at::empty(box.shape, at::TensorOptions(tensor.dtype));
    source.read(name, box, stored);
    const Tensor slice = stored.to(at::kDouble);
    const Tensor is_finite = at::isfinite(slice), numbers = slice.masked_select(is_finite);
    const int64_t nan = at::isnan(slice).sum().item<int64_t>();
    stats.nan += nan;
    stats.inf += slice.numel() - numbers.numel() - nan;
    if (numbers.numel() == 0) return;
    const auto [low, high] = at::aminmax(numbers);
    stats.min = std::min(stats.min, low.item<double>());
    stats.max = std::max(stats.max, high.item<double>());
    sum += numbers.sum().item<double>();
    finite += numbers.numel();
  });
  stats.mean = sum / static_cast<double>(finite);
  if (finite == 0) stats.min = stats.max = stats.mean;
  return stats;
}

}  // namespace titanium::checkpoint
