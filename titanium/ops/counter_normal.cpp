#include "titanium/ops/counter_normal.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "titanium/ops/gpu_kernels.h"

namespace titanium::ops {

Tensor counter_normal(uint64_t key, std::span<const int64_t> rows, int64_t columns, Device device) {
  const auto count = static_cast<int64_t>(rows.size());
  const Tensor out = at::empty({count, columns}, at::TensorOptions(at::kFloat).device(device));
  const kernels::NormalDistribution distribution = kernels::truncated_normal(1, 1e6);
  for (int64_t i = 0; i < count; ++i) {
    const auto args = [&, i](int64_t begin, int64_t end) -> kernels::FillNormalArgs {
      return {out.mutable_data_ptr<float>() + i * columns + begin,
              /*bfloat16=*/false,
              /*rows=*/1,
              end - begin,
              static_cast<uint64_t>(rows[i] * columns + begin),
              /*row_stride=*/0,
              key,
              distribution};
    };
    if (device.is_cuda()) {
      launch(args(0, columns));
    } else {
      at::parallel_for(0, columns, 4096,
                       [&](int64_t begin, int64_t end) { kernels::fill_normal_on_cpu(args(begin, end)); });
    }
  }
  return out;
}

}  // namespace titanium::ops
