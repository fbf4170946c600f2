// The header of a safetensors file: 8 bytes of length, that many bytes of JSON, then the tensors' bytes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::checkpoint {

// Where a tensor lies, in bytes from the end of the header.
struct SafetensorsEntry {
  std::string name;
  Dtype dtype;
  Shape shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  uint64_t data_offset = 0;               // of the tensors' bytes in the file
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// Reads and validates the header at the front of `file`, which holds the whole file. What passes is consistent: every
// entry lies inside the file, has as many bytes as its shape and dtype say, and the entries cover the data without
// overlap or gap. Throws Error that names `path`, the tensor and the expectation. Allocates in proportion to the
// header.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& path);

// The bytes before the data, for entries in order of `begin`; padded so that the data begin at a multiple of 8.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace titanium::checkpoint
