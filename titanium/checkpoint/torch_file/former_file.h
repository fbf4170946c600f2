// What torch.save wrote before torch 1.6, and still writes when told to: no zip archive, but one pickle after the other
// (a magic number, a version, facts about the machine, the value, the keys of its storages) and then the storages, each
// a number of elements and their bytes. Models that were published at that time are such files.
#pragma once

#include "titanium/checkpoint/torch_file/zip_archive.h"

namespace titanium::checkpoint {

bool is_former_torch_file(std::span<const std::byte> bytes);

// The parts of such a file under the names that they have in an archive: "data.pkl", "data/<key>". They have no
// checksums. Throws Error that names `what` when it is not what torch.save writes on a little-endian machine.
ZipArchive::Records former_torch_records(std::span<const std::byte> bytes, const std::string& what);

}  // namespace titanium::checkpoint
