#include "titanium/checkpoint/torch_file/dtype.h"

#include <array>

#include "titanium/base/error.h"

namespace titanium::checkpoint {
namespace {

constexpr std::array kDtypes = {
    TorchDtype{at::kFloat, "float32", "FloatStorage"},
    TorchDtype{at::kBFloat16, "bfloat16", "BFloat16Storage"},
    TorchDtype{at::kHalf, "float16", "HalfStorage"},
    TorchDtype{at::kDouble, "float64", "DoubleStorage"},
    TorchDtype{at::kLong, "int64", "LongStorage"},
    TorchDtype{at::kInt, "int32", "IntStorage"},
    TorchDtype{at::kShort, "int16", "ShortStorage"},
    TorchDtype{at::kChar, "int8", "CharStorage"},
    TorchDtype{at::kByte, "uint8", "ByteStorage"},
    TorchDtype{at::kBool, "bool", "BoolStorage"},
    TorchDtype{at::kComplexFloat, "complex64", "ComplexFloatStorage"},
    TorchDtype{at::kComplexDouble, "complex128", "ComplexDoubleStorage"},
    TorchDtype{at::kUInt16, "uint16", ""},
    TorchDtype{at::kUInt32, "uint32", ""},
    TorchDtype{at::kUInt64, "uint64", ""},
    TorchDtype{at::kFloat8_e4m3fn, "float8_e4m3fn", ""},
    TorchDtype{at::kFloat8_e5m2, "float8_e5m2", ""},
};
constexpr std::string_view kModule = "torch.";

template <typename Matches>
const TorchDtype* find(const Matches& matches) {
  for (const TorchDtype& known : kDtypes) {
    if (matches(known)) return &known;
  }
  return nullptr;
}

}  // namespace

const TorchDtype& torch_dtype(Dtype dtype) {
  const TorchDtype* found = find([&](const TorchDtype& known) { return known.dtype == dtype; });
  TI_CHECK(found != nullptr, "dtype {} cannot be stored in a checkpoint. Convert the tensor first.",
           c10::toString(dtype));
  return *found;
}

const TorchDtype* find_torch_dtype(std::string_view type_name) {
  if (!type_name.starts_with(kModule)) return nullptr;
  return find([&](const TorchDtype& known) { return known.name == type_name.substr(kModule.size()); });
}

const TorchDtype* find_torch_storage(std::string_view type_name) {
  if (!type_name.starts_with(kModule)) return nullptr;
  const std::string_view name = type_name.substr(kModule.size());
  return find([&](const TorchDtype& known) { return !known.storage.empty() && known.storage == name; });
}

}  // namespace titanium::checkpoint
