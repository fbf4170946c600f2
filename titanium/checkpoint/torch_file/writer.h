// Writes a file that torch.load(weights_only=True) reads, tensor by tensor: nothing is held in memory.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "titanium/checkpoint/dcp/metadata.h"
#include "titanium/checkpoint/io/temporary_file.h"
#include "titanium/checkpoint/torch_file/zip_archive.h"

namespace titanium::checkpoint {

// What the file holds at the end of a path through nested dicts and lists.
struct TorchFileItem {
  struct TensorKind {
    Dtype dtype;
    Shape shape;
  };
  DcpPath path;
  std::variant<TensorKind, PickleValue> content;
};

class TorchFileWriter {
 public:
  // Begins the file, which appears when it is published. Throws Error when a path leads through a tensor or value, or
  // when the file cannot be written, as do the others.
  TorchFileWriter(const std::filesystem::path& target, std::span<const TorchFileItem> items);

  // The next bytes of the tensors, which follow each other in the order of the items, each contiguous. A call has bytes
  // of one tensor only.
  void write(std::span<const std::byte> bytes);
  // To be called after the last byte.
  void publish();

 private:
  void begin_next();

  TemporaryFile file_;
  ZipBuilder zip_;
  std::vector<uint64_t> sizes_;  // of the tensors
  size_t current_ = 0;
  uint64_t left_ = 0;  // of the current one
  uint32_t crc_ = 0;
};

}  // namespace titanium::checkpoint
