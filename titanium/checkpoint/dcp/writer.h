// Writes a distributed checkpoint that torch.distributed.checkpoint loads.
//
// Every rank writes its own files, then one rank publishes all of them:
//
//   DcpPart mine = write_dcp_files(folder, rank, tensors, objects, files);   // on every rank
//   gather format_dcp_part(mine), parse_dcp_part                             // on one rank
//   publish_dcp(folder, parts, {{"step", "100"}});                           // there
//
// A folder without the index is no checkpoint, so the checkpoint appears when it is complete. Everything that writes
// throws Error with the path, the reason of the system and what to do, and leaves no temporary file behind.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "titanium/checkpoint/dcp/metadata.h"
#include "titanium/checkpoint/io/file_sums.h"

namespace titanium::checkpoint {

// A box of a tensor that this rank stores; replicas are written by one rank only.
struct DcpTensorItem {
  std::string name;
  Shape global_shape;
  Box box;
  Tensor tensor;  // of the box's shape; one on a GPU passes through a pinned buffer
  bool requires_grad = false;
  DcpPath path;  // empty: the name alone
};

// A value without tensors, as Python would have it.
struct DcpObjectItem {
  std::string name;
  PickleValue value;
  DcpPath path;  // empty: the name alone
};

// What a rank has written: the index of its files, and their checksums.
struct DcpPart {
  DcpMetadata metadata;
  std::vector<FileSum> sums;
};

// Writes `__<rank>_<k>.distcp` into the folder, at most `files` of them, of about the same size and each by threads of
// its own. When it returns, the files are on the disk. With a `label`, progress is shown under that name.
DcpPart write_dcp_files(const std::filesystem::path& folder, int rank, std::span<const DcpTensorItem> tensors,
                        std::span<const DcpObjectItem> objects, int files = 4, const std::string& label = "");

// To send a part to another rank. `what` names it in the message when the bytes are not those of a part.
std::string format_dcp_part(const DcpPart& part);
DcpPart parse_dcp_part(std::span<const std::byte> bytes, const std::string& what);

// Joins the parts of all ranks and writes `titanium.json` (facts about the run, checksums of all files), then
// `.metadata`; both are on the disk when it returns. Call it when all ranks have written their files. Throws Error when
// ranks disagree (`merge_dcp_metadata`).
void publish_dcp(const std::filesystem::path& folder, std::span<const DcpPart> parts,
                 const std::map<std::string, std::string>& facts);

}  // namespace titanium::checkpoint
