// What Titanium adds to a distributed checkpoint or a folder of Hugging Face weights, in a file that other programs do
// not look at: `titanium.json`.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "titanium/checkpoint/io/file_sums.h"

namespace titanium::checkpoint {

inline const std::string kSidecarFile = "titanium.json";

struct Sidecar {
  std::map<std::string, std::string> facts;  // about the run: step, layout
  std::map<std::string, FileSum> sums;       // of all other files of the checkpoint
};

// JSON whose last member is the checksum of all bytes before it.
std::string format_sidecar(const Sidecar& sidecar);

// Throws Error that names `what` when the bytes are not exactly those that were written, are of a later version, or do
// not make sense.
Sidecar parse_sidecar(std::span<const std::byte> bytes, const std::string& what);

// The checksums of all files of a folder but the sidecar itself and folders inside. Reads them with several threads.
// Throws Error when one cannot be read.
std::map<std::string, FileSum> sum_folder(const std::filesystem::path& folder);

}  // namespace titanium::checkpoint
