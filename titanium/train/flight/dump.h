// The flight recorder on disk, in the format of PyTorch's dumps (version 2.10), which `torchfrtrace` reads.
#pragma once

#include <filesystem>
#include <vector>

#include "titanium/comm/flight_recorder.h"

namespace titanium::train {

// Note [Dumps for every back end]
// PyTorch's analyser knows NCCL's collectives alone, so collectives of every back end have its names in a dump:
// "nccl:_all_gather_base". States are those of the host: scheduled, when nobody has waited for the collective yet;
// started, when a thread waits or the wait has failed; completed, when the wait has returned. NCCL's own are taken from
// c10d's recorder, which asks the device. Messages between two ranks form a process group of their own for each
// direction, "pp 0->1", so that the n-th message that is sent meets the n-th that is received; PyTorch's analyser
// otherwise expects all ranks of the pipeline in each of them. The step is a key of each entry, and its only frame.

// Writes <prefix><rank> for each rank of the world that lives in this process and has a group with others; usually that
// is one. Returns the files. Never waits for long: a device that does not answer within 2 s leaves NCCL's states out.
// Throws Error when a file cannot be written.
std::vector<std::filesystem::path> write_flight_dumps(const comm::FlightRecorder& recorder,
                                                      const std::filesystem::path& prefix);

}  // namespace titanium::train
