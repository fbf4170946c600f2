#include "titanium/comm/nccl.h"

#include "titanium/base/error.h"

namespace titanium::comm {

std::shared_ptr<C10dGroup> make_nccl_group(const GroupSpec& spec, Device) {
  throw Error(fmt::format("axis {} needs NCCL, but this build has no CUDA. Train on the CPU or build with CUDA 13.",
                          spec.axis));
}

std::string nccl_flight_dump() { return {}; }

}  // namespace titanium::comm
