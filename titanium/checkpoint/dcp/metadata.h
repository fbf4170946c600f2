// The index of a distributed checkpoint: what torch.distributed.checkpoint keeps in the file `.metadata`.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "titanium/checkpoint/torch_file/pickle_value.h"
#include "titanium/tensor/parameter.h"

namespace titanium::checkpoint {

// A tensor that is stored in boxes ("chunks"). Together they cover it without overlap, if whoever wrote it was right.
struct DcpTensor {
  Dtype dtype = Dtype::Undefined;
  bool requires_grad = false;
  Shape shape;
  std::vector<Box> chunks;
};
// Any other Python value.
struct DcpObject {};
using DcpEntry = std::variant<DcpTensor, DcpObject>;

// The bytes of a chunk or object: one archive of torch.save inside a file of the folder.
struct DcpLocation {
  std::string file;
  int64_t offset = 0;
  int64_t length = 0;
  std::vector<std::string> transforms;  // how the bytes were changed, such as compression; usually nothing
};

// A chunk is found by its tensor and offset, an object by its name alone.
struct DcpIndex {
  std::string name;
  std::optional<Shape> offset;
  std::strong_ordering operator<=>(const DcpIndex&) const = default;
};

// The way to an entry through the nested state dict that was saved: keys of dicts, and positions in lists.
using DcpPath = std::vector<std::variant<std::string, int64_t>>;

struct DcpMetadata {
  std::map<std::string, DcpEntry> entries;
  std::map<std::string, DcpPath> paths;
  std::map<DcpIndex, DcpLocation> locations;
  std::string version;  // "1.0.0"; empty in files of torch before 2.8
};

// Reads the content of a `.metadata` file; `what` names it in messages. What passes is consistent: shapes and their
// bytes fit 64 bits, chunks lie inside their tensors, file names are names of files beside it, positions are not
// negative. Throws Error otherwise, and all that `read_pickle` throws.
DcpMetadata parse_dcp_metadata(std::span<const std::byte> bytes, const std::string& what);

// The content of a `.metadata` file that torch reads. An entry without a path gets the path of its name alone.
std::string format_dcp_metadata(const DcpMetadata& metadata);

// Joins what several ranks have written. A tensor has the same shape and dtype on all. Throws Error when they differ,
// when two chunks overlap, or when a tensor or object is there twice.
DcpMetadata merge_dcp_metadata(std::span<const DcpMetadata> parts);

}  // namespace titanium::checkpoint
