#include "titanium/checkpoint/stored_copy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>

#include "titanium/checkpoint/boxes.h"

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

bool lies_contiguously(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim > 0; --dim) {
    if (sizes[dim - 1] != 1 && strides[dim - 1] != expected) return false;
    expected *= sizes[dim - 1];
  }
  return true;
}

// Calls use(box) for boxes that together hold the elements [begin, end) of a tensor of `shape`, counted row by row:
// whole rows, and what is left of the first and the last one. `box` has the dims up to `dim`.
template <typename Use>
void for_each_box(const Shape& shape, size_t dim, Box& box, int64_t begin, int64_t end, const Use& use) {
  if (begin >= end) return;
  if (dim == shape.size()) return use(box);
  int64_t row_size = 1;
  for (size_t i = dim + 1; i < shape.size(); ++i) row_size *= shape[i];
  const auto within_row = [&](int64_t row, int64_t from, int64_t to) {
    box.offset[dim] = row, box.shape[dim] = 1;
    for_each_box(shape, dim + 1, box, from, to, use);
  };
  const int64_t first = (begin + row_size - 1) / row_size, last = end / row_size;  // whole rows
  if (first > last) return within_row(last, begin % row_size, end % row_size);
  if (begin % row_size != 0) within_row(first - 1, begin % row_size, row_size);
  if (first < last) {
    for (size_t i = dim; i < shape.size(); ++i) box.offset[i] = 0, box.shape[i] = shape[i];
    box.offset[dim] = first, box.shape[dim] = last - first;
    use(box);
  }
  if (end % row_size != 0) within_row(last, 0, end % row_size);
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
  } else if (!destination.is_cpu() && lies_contiguously(destination.sizes(), source.strides)) {
    const Tensor stored = at::from_blob(const_cast<std::byte*>(from), destination.sizes(), source.dtype);
    destination.copy_(stored.to(destination.device(), /*non_blocking=*/true));
  } else {
    copy_blocks(from, source.strides, source.dtype, destination);
  }
}

void copy_range(Dtype dtype, const Shape& shape, int64_t first, std::span<const std::byte> bytes, const Box& box,
                const Tensor& destination) {
  const auto element_size = static_cast<int64_t>(c10::elementSize(dtype));
  Shape strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim > 1; --dim) strides[dim - 2] = strides[dim - 1] * shape[dim - 1];
  Box whole{Shape(shape.size()), Shape(shape.size())};
  const int64_t end = first + static_cast<int64_t>(bytes.size()) / element_size;
  for_each_box(shape, 0, whole, first, end, [&](const Box& part) {
    auto common = intersection(part, box);
    if (!common) return;
    int64_t position = -first;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      position += common->offset[dim] * strides[dim];
      common->offset[dim] -= box.offset[dim];
    }
    const StoredTensor source{dtype, common->shape, strides, bytes.data() + position * element_size, {}};
    copy_stored(source, {}, box_of(destination, *common));
  });
}

}  // namespace titanium::checkpoint
