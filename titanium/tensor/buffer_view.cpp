#include "titanium/tensor/buffer_view.h"

#include "titanium/base/error.h"

namespace titanium {
namespace {

// One element at the place, which the caller gives its shape.
Tensor view_at(const Tensor& buffer, Dtype dtype, int64_t offset) {
  const size_t bytes = static_cast<size_t>(buffer.storage_offset()) * buffer.element_size(),
               size = c10::elementSize(dtype);
  TI_ASSERT(bytes % size == 0, "a buffer that does not begin at an element of {}", c10::toString(dtype));
  Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(buffer.storage()),
                                                         buffer.key_set(), c10::scalarTypeToTypeMeta(dtype));
  view.unsafeGetTensorImpl()->set_storage_offset(static_cast<int64_t>(bytes / size) + offset);
  return view;
}

}  // namespace

Tensor buffer_view(const Tensor& buffer, Dtype dtype, int64_t offset, c10::IntArrayRef shape) {
  Tensor view = view_at(buffer, dtype, offset);
  view.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return view;
}

Tensor buffer_view(const Tensor& buffer, Dtype dtype, int64_t offset, c10::IntArrayRef shape,
                   c10::IntArrayRef strides) {
  Tensor view = view_at(buffer, dtype, offset);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(shape, strides);
  return view;
}

}  // namespace titanium
