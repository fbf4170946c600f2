// Writes a distributed checkpoint that torch.distributed.checkpoint loads.
//
// Every rank writes its own files, then one rank writes the index of all of them:
//
//   DcpMetadata mine = write_dcp_files(folder, rank, tensors, objects);      // on every rank
//   gather format_dcp_metadata(mine), parse_dcp_metadata, merge_dcp_metadata // on one rank
//   write_dcp_metadata(folder, whole);                                       // there
//
// A folder without the index is no checkpoint, so the checkpoint appears when it is complete.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "titanium/checkpoint/dcp_metadata.h"

namespace titanium::checkpoint {

// A box of a tensor that this rank stores; replicas are written by one rank only.
struct DcpTensorItem {
  std::string name;
  Shape global_shape;
  Box box;
  Tensor tensor;  // of the box's shape; contiguous ones on the CPU are written without a copy
  bool requires_grad = false;
  DcpPath path;  // empty: the name alone
};

// A value without tensors, as Python would have it.
struct DcpObjectItem {
  std::string name;
  PickleValue value;
  DcpPath path;  // empty: the name alone
};

// Writes `__<rank>_<k>.distcp` into the folder, at most `files` of them, of about the same size and each by a thread of
// its own. When it returns, the files are on the disk. Throws Error when a file cannot be written.
DcpMetadata write_dcp_files(const std::filesystem::path& folder, int rank, std::span<const DcpTensorItem> tensors,
                            std::span<const DcpObjectItem> objects, int files = 1);

// Writes `.metadata`, on the disk when it returns. Call it when all files of all ranks are written.
void write_dcp_metadata(const std::filesystem::path& folder, const DcpMetadata& metadata);

}  // namespace titanium::checkpoint
