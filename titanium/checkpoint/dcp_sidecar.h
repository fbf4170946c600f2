// What Titanium adds to a distributed checkpoint, in a file that torch does not look at: `titanium.json`.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "titanium/checkpoint/file_sums.h"

namespace titanium::checkpoint {

inline const std::string kSidecarFile = "titanium.json";

struct DcpSidecar {
  std::map<std::string, std::string> facts;  // about the run: step, layout
  std::map<std::string, FileSum> sums;       // of all other files of the checkpoint
};

// JSON whose last member is the checksum of all bytes before it.
std::string format_dcp_sidecar(const DcpSidecar& sidecar);

// Throws Error that names `what` when the bytes are not exactly those that were written, are of a later version, or do
// not make sense.
DcpSidecar parse_dcp_sidecar(std::span<const std::byte> bytes, const std::string& what);

}  // namespace titanium::checkpoint
