// Reads a distributed checkpoint of torch or of Titanium: any part of any tensor, however it was cut when it was saved.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "titanium/checkpoint/dcp_metadata.h"
#include "titanium/checkpoint/mapped_file.h"

namespace titanium::checkpoint {

// Files are mapped when first needed and stay mapped. Several threads may read at the same time.
class DcpReader {
 public:
  // Reads `.metadata` of the folder. Throws Error when the folder or that file is missing or damaged.
  explicit DcpReader(const std::filesystem::path& folder);

  const DcpMetadata& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return metadata_.entries.contains(name); }

  // The others throw Error: for a name that is unknown or of the other kind; when a file is missing, shorter than the
  // metadata say, or damaged; and when it does not hold what the metadata say.

  const DcpTensor& tensor(const std::string& name) const;

  // Copies a box of the tensor into `destination`, of the box's shape and on any device, and touches only the bytes of
  // the box. Floating-point numbers are converted to the destination's dtype; other dtypes must be the same. Throws
  // Error when the saved tensor has another shape than `global_shape`, or when its chunks do not cover the box.
  void read_box(const std::string& name, const Shape& global_shape, const Box& box, const Tensor& destination) const;

  // All of it, on the CPU.
  Tensor read_tensor(const std::string& name) const;

  PickleValue read_object(const std::string& name) const;

  // Reads all bytes of the entry and throws Error when they have changed since they were written.
  void verify(const std::string& name) const;

 private:
  const DcpEntry& entry(const std::string& name) const;
  // The archive at that place of a file.
  std::span<const std::byte> bytes_at(const DcpIndex& index) const;
  const MappedFile& mapped(const DcpIndex& index, const std::string& file) const;
  void copy_piece(const std::string& name, const DcpTensor& saved, const Box& chunk, const Box& piece,
                  const Tensor& destination) const;
  std::string where(const std::string& name) const;

  std::filesystem::path folder_;
  DcpMetadata metadata_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<MappedFile>> files_;
};

}  // namespace titanium::checkpoint
