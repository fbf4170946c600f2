// Writes a safetensors file.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "titanium/tensor/tensor.h"

namespace titanium::checkpoint {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// One file with these tensors, of any device and stride; names are unique. The file appears whole or not at all, and
// missing folders are made. Tensors on a GPU pass through host memory one at a time.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace titanium::checkpoint
