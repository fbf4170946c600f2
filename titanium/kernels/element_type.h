// The element types that our kernels read and write. Whatever the type, they compute in fp32.
#pragma once

#include <cstdint>

namespace titanium::kernels {

enum class ElementType : int32_t { kFloat32, kBFloat16 };

constexpr int64_t element_size(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

}  // namespace titanium::kernels
