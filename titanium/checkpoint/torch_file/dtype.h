// How torch's files name dtypes.
#pragma once

#include <string_view>

#include "titanium/tensor/tensor.h"

namespace titanium::checkpoint {

struct TorchDtype {
  Dtype dtype;
  std::string_view name;     // "float32" of torch.float32
  std::string_view storage;  // "FloatStorage" of torch.FloatStorage; empty for the dtypes that have none
};

// Throws Error for a dtype that no file of torch holds here.
const TorchDtype& torch_dtype(Dtype dtype);
// "torch.float32", "torch.FloatStorage". Null for others.
const TorchDtype* find_torch_dtype(std::string_view type_name);
const TorchDtype* find_torch_storage(std::string_view type_name);

}  // namespace titanium::checkpoint
