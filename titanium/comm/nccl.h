// Groups over NCCL. A build without CUDA has the same functions; they throw Error.
#pragma once

#include "titanium/comm/c10d_group.h"

namespace titanium::comm {

// Makes the communicator at once. Collectives run on a stream of the group's own, on `device`.
std::shared_ptr<C10dGroup> make_nccl_group(const GroupSpec& spec, Device device);

// What c10d has recorded of all NCCL groups of this process, in the format of its flight recorder; empty without CUDA.
// May wait for a device that hangs.
std::string nccl_flight_dump();

}  // namespace titanium::comm
