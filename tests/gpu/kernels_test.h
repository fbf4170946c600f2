// Calling kernels on tensors, and comparing with references in fp64.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>

#include "tests/gpu/gpu_test.h"
#include "titanium/kernels/element_type.h"
#include "titanium/kernels/tensor_list.h"

namespace titanium::test {

inline kernels::ElementType element_type(const Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? kernels::ElementType::kBFloat16 : kernels::ElementType::kFloat32;
}

class KernelTest : public GpuTest {
 protected:
  // Normal values that `dtype` can hold, on the GPU. They begin `shift` elements after an aligned address.
  Tensor random(const Shape& shape, Dtype dtype, int64_t shift = 0) const {
    const int64_t size = volume(shape);
    const Tensor buffer = at::empty({size + shift}, at::TensorOptions(dtype).device(gpu_));
    Tensor tensor = buffer.narrow(0, shift, size).view(shape);
    tensor.copy_(random_tensor(shape));
    return tensor;
  }
  Tensor empty(const Shape& shape, Dtype dtype) const {
    return at::full(shape, std::nan(""), at::TensorOptions(dtype).device(gpu_));  // what is not written is seen
  }
  Tensor scratch(int64_t bytes) const { return at::empty({bytes}, at::TensorOptions(at::kByte).device(gpu_)); }

  // A numbered list of tensors on the GPU.
  template <typename Entry>
  struct List {
    Tensor bytes;
    const Entry* entries;
    int64_t count;
    int64_t chunks;
  };
  template <typename Entry>
  List<Entry> upload(std::vector<Entry> entries) const {
    const int64_t chunks = kernels::number_chunks(entries.data(), static_cast<int64_t>(entries.size()));
    const Tensor host = at::empty({static_cast<int64_t>(entries.size() * sizeof(Entry))}, at::kByte);
    std::memcpy(host.data_ptr(), entries.data(), entries.size() * sizeof(Entry));
    const Tensor bytes = host.to(gpu_);
    return {bytes, static_cast<const Entry*>(bytes.data_ptr()), static_cast<int64_t>(entries.size()), chunks};
  }

  // Calls a launcher on the current stream.
  template <typename Launcher, typename Args>
  void launch(Launcher launcher, const Args& args) const {
    launcher(args, c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

// On the CPU, for references.
inline Tensor wide(const Tensor& tensor) { return tensor.cpu().to(at::kDouble); }

// Largest error beyond one rounding to the dtype of `actual`, relative to the largest element.
inline double error_beyond_rounding(const Tensor& actual, const Tensor& expected) {
  const double unit = actual.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0x1p-24;
  const Tensor a = wide(actual), e = wide(expected);
  const double scale = std::max(1e-30, e.abs().max().item<double>());
  return ((a - e).abs() - e.abs() * unit).max().item<double>() / scale;
}

}  // namespace titanium::test

// The kernel computes in fp32 and rounds once. `limit` is tolerance(at::kFloat) or a multiple of it.
#define EXPECT_ROUNDED(actual, expected, limit)                                                              \
  do {                                                                                                       \
    ASSERT_EQ((actual).sizes(), (expected).sizes());                                                         \
    EXPECT_LE(::titanium::test::error_beyond_rounding(actual, expected), limit) << #actual " vs " #expected; \
  } while (false)
