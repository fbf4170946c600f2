// Reads a distributed checkpoint of torch or of Titanium: any part of any tensor, however it was cut when it was saved.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "titanium/checkpoint/dcp/metadata.h"
#include "titanium/checkpoint/io/mapped_file.h"
#include "titanium/checkpoint/io/stretch_reader.h"
#include "titanium/checkpoint/sidecar.h"
#include "titanium/remote/reading/byte_source.h"

namespace titanium::checkpoint {

// A box of a tensor, and where it should go.
struct DcpRequest {
  std::string name;
  Shape global_shape;
  Box box;
  Tensor destination;  // of the box's shape; any strides, dtype and device
};

// Several threads may read at the same time.
class DcpReader {
 public:
  // Reads `.metadata` of the folder, which may be at an address, and `titanium.json` where there is one. Throws Error
  // when the folder or the first is missing, when one of them is damaged, or when they do not belong together.
  explicit DcpReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const DcpMetadata& metadata() const { return metadata_; }
  // What the writer noted about the run. Empty for checkpoints of torch.
  const std::map<std::string, std::string>& facts() const { return sidecar_.facts; }
  // Whether there are checksums of all bytes, or else only those that torch wrote with each tensor and value.
  bool has_sums() const { return !sidecar_.sums.empty(); }
  bool contains(const std::string& name) const { return metadata_.entries.contains(name); }

  // The others throw Error: for a name that is unknown or of the other kind; when a file is missing, shorter than the
  // metadata say, or damaged; and when it does not hold what the metadata say.

  const DcpTensor& tensor(const std::string& name) const;

  // Copies boxes of tensors into their destinations. Reads the blocks of the files that are needed, each once, with
  // that many threads (0: chosen), and checks their checksums; where the checkpoint has none (torch's), the checksum of
  // each chunk that is read wholly. Floating-point numbers are converted to the destination's dtype; other dtypes must
  // be the same. Throws Error when a saved tensor has another shape than `global_shape`, or when its chunks do not
  // cover the box. Destinations on a GPU are filled on the current stream, and they are when this returns. With a
  // `label`, progress is shown under that name.
  void read(std::span<const DcpRequest> requests, int threads = 0, const std::string& label = "") const;

  // One box.
  void read_box(const std::string& name, const Shape& global_shape, const Box& box, const Tensor& destination) const;

  PickleValue read_object(const std::string& name) const;

  // Reads everything and returns what is wrong: files that are missing, shorter, or have changed since they were
  // written, and tensors of which a part is missing. Nothing for a good checkpoint. Throws Error only for what the
  // constructor would throw for.
  std::vector<FileProblem> verify(int threads = 0) const;

 private:
  struct Plan;
  struct Place;
  struct Parsed;

  const DcpEntry& entry(const std::string& name) const;
  std::string where(const std::string& name) const;
  void check_request(const DcpRequest& request) const;
  uint64_t size_of(const std::string& name, const std::string& file) const;
  // Where an archive is; it lies inside an existing file.
  const DcpLocation& location(const DcpIndex& index) const;
  // What the archive of a tensor says, without its bytes.
  Parsed parse(const DcpIndex& index) const;
  std::shared_ptr<const MappedFile> mapped(const std::string& name) const;
  const remote::ByteSource& object(const std::string& name) const;
  // All of an archive, checked.
  Tensor read_archive(const DcpIndex& index) const;
  Place place_of(const std::string& name, const DcpTensor& saved, const Box& chunk) const;
  void plan(const DcpRequest& request, Plan& plan) const;
  Plan plan_all(std::span<const DcpRequest> requests) const;
  void plan_chunk(const DcpRequest& request, const Box& chunk, const Box& piece, Plan& plan) const;
  // Everything that has bytes of its own in a file.
  std::vector<DcpIndex> indexes() const;
  // The storage of a tensor. Checks the rest of the archive on the way.
  Stretch stored_bytes(const DcpIndex& index) const;

  std::filesystem::path folder_;
  Sidecar sidecar_;  // empty: there is none
  DcpMetadata metadata_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, uint64_t> sizes_;
  mutable std::map<std::string, std::shared_ptr<const MappedFile>> files_;
  mutable std::map<std::string, std::unique_ptr<remote::ByteSource>> objects_;  // where the folder is an address
};

}  // namespace titanium::checkpoint
