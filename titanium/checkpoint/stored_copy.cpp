#include "titanium/checkpoint/stored_copy.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

namespace titanium::checkpoint {
namespace {

constexpr int64_t kBlockBytes = 8 << 20;

struct Dim {
  int64_t size, from_stride, to_stride;
};

// Copies element by element, or rather in the longest runs that are contiguous on both sides.
void copy_elements(const std::byte* from, at::IntArrayRef from_strides, std::byte* to, at::IntArrayRef to_strides,
                   at::IntArrayRef sizes, int64_t element_size) {
  std::vector<Dim> dims;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 0) return;
    if (sizes[dim] > 1) dims.push_back({sizes[dim], from_strides[dim], to_strides[dim]});
  }
  int64_t run = 1;
  while (!dims.empty() && dims.back().from_stride == run && dims.back().to_stride == run) {
    run *= dims.back().size;
    dims.pop_back();
  }
  std::vector<int64_t> index(dims.size(), 0);
  while (true) {
    std::memcpy(to, from, static_cast<size_t>(run * element_size));
    size_t dim = dims.size();
    for (; dim > 0; --dim) {
      const Dim& d = dims[dim - 1];
      from += d.from_stride * element_size;
      to += d.to_stride * element_size;
      if (++index[dim - 1] < d.size) break;
      from -= d.size * d.from_stride * element_size;
      to -= d.size * d.to_stride * element_size;
      index[dim - 1] = 0;
    }
    if (dim == 0) return;
  }
}

// In blocks of bounded size, because the stored bytes may be unaligned, and the whole may be large.
void copy_blocks(const std::byte* from, at::IntArrayRef strides, Dtype dtype, const Tensor& destination) {
  const auto element_size = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t bytes = destination.numel() * element_size;
  if (bytes == 0) return;
  if (bytes <= kBlockBytes || destination.dim() == 0) {
    const Tensor block = at::empty(destination.sizes(), at::TensorOptions(dtype));
    copy_elements(from, strides, static_cast<std::byte*>(block.mutable_data_ptr()), block.strides(), block.sizes(),
                  element_size);
    destination.copy_(block);
    return;
  }
  const int64_t rows = destination.size(0), row_bytes = bytes / rows;
  const int64_t step = std::max<int64_t>(kBlockBytes / row_bytes, 1);
  for (int64_t row = 0; row < rows; row += step) {
    const std::byte* begin = from + row * strides[0] * element_size;
    if (step == 1) {
      copy_blocks(begin, strides.slice(1), dtype, destination.select(0, row));
    } else {
      copy_blocks(begin, strides, dtype, destination.narrow(0, row, std::min(step, rows - row)));
    }
  }
}

}  // namespace

void copy_stored(const StoredTensor& source, const Shape& offset, const Tensor& destination) {
  const c10::NoGradGuard no_grad;
  const auto element_size = static_cast<int64_t>(c10::elementSize(source.dtype));
  const std::byte* from = source.data;
  for (size_t dim = 0; dim < offset.size(); ++dim) from += offset[dim] * source.strides[dim] * element_size;
  if (destination.is_cpu() && destination.scalar_type() == source.dtype) {
    copy_elements(from, source.strides, static_cast<std::byte*>(destination.mutable_data_ptr()), destination.strides(),
                  destination.sizes(), element_size);
  } else {
    copy_blocks(from, source.strides, source.dtype, destination);
  }
}

}  // namespace titanium::checkpoint
