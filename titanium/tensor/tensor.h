// The few types of libtorch that all torch layers name, and how users spell them.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

namespace titanium {

using Tensor = at::Tensor;
using Dtype = at::ScalarType;
using Device = at::Device;
using Shape = std::vector<int64_t>;

// "float32", "bfloat16", "float16" as in TOML files. Throws UsageError on another name.
Dtype parse_dtype(std::string_view name);
std::string_view dtype_name(Dtype dtype);

// "auto" is the GPU if this build and this machine have one, else the CPU. Throws UsageError when "cuda" is asked for
// and there is none. `local_rank` picks the GPU.
Device parse_device(std::string_view name, int local_rank);

// Number of elements of a shape.
int64_t volume(const Shape& shape);

}  // namespace titanium
