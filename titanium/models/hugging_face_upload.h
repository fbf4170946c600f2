// Writes a model as Hugging Face weights to an address, from all ranks at once.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "titanium/checkpoint/dcp/writer.h"
#include "titanium/checkpoint/io/temporary_file.h"
#include "titanium/comm/group.h"
#include "titanium/models/hugging_face_export.h"

namespace titanium::models {

// Note [One writer per object]
// An object of a bucket is written from front to back, and ranks have rows of all files. So file f belongs to rank
// f mod ranks, which takes range after range of it: in every round all ranks send what they have of the ranges that
// are next, and each owner writes its own. Nothing is kept on a disk, and a rank holds one range of its file and what
// it sends in a round. A rank that fails goes on to send and receive, so that nobody waits for it, and says so in the
// end.
class HuggingFaceUpload {
 public:
  static constexpr uint64_t kRangeBytes = 16 << 20;

  // The same plan on every rank. `folder` is the address, or a folder that all ranks see. The group's tensors are in
  // host memory. Plan and group outlive this.
  HuggingFaceUpload(const HuggingFaceExport& plan, comm::Group& group, std::filesystem::path folder,
                    uint64_t range_bytes = kRangeBytes);

  // On all ranks together, each with its parts of the parameters: every element is in one part of one rank. Returns
  // what rank 0 needs for `complete`. Throws Error after all ranks have come to the end.
  std::string write(std::span<const checkpoint::DcpTensorItem> parts);

  // On rank 0, with what all ranks have returned: config.json, the tokenizer's files and titanium.json with the
  // checksums of all files. Last comes what makes the folder whole: the index, or the one file of weights. Throws
  // Error.
  void complete(const std::vector<std::string>& written);

 private:
  // A file that this rank writes.
  struct OpenFile {
    std::unique_ptr<checkpoint::TemporaryFile> file;
    checkpoint::FileSummer sums;
  };
  std::vector<std::string> messages(size_t round, std::span<const checkpoint::DcpTensorItem> parts) const;
  void write_range(const HuggingFaceExport::Range& range, const std::vector<std::string>& messages);
  void finish_file(size_t file);
  void write_small(const std::string& name, const std::string& content);

  const HuggingFaceExport& plan_;
  comm::Group& group_;
  std::filesystem::path folder_;
  std::vector<std::vector<HuggingFaceExport::Range>> ranges_;  // of each rank, in the order of its files
  OpenFile open_;
  std::map<std::string, checkpoint::FileSum> sums_;
};

}  // namespace titanium::models
