// The ranks of a run: from the launch environment and [comm] to a world of processes.
#pragma once

#include <functional>
#include <memory>

#include "titanium/comm/environment.h"
#include "titanium/comm/world.h"
#include "titanium/config/job_config.h"

namespace titanium::train {

// The launch environment. With comm.mode = "fake_backend", rank 0 of as many ranks as NGPU says. Throws UsageError for
// variables that are missing, malformed or contradict each other.
comm::Environment ranks_of_run(const config::Comm& options);

// A GPU for each local rank, or one for several of them where Gloo carries their tensors.
Device pick_device(const JobConfig& config, const comm::Environment& ranks);

// Waits for all ranks. `on_peer_failure` gets a line for the log that says what this rank was doing when it learnt of
// the failure; the flight recorder is then already on disk. Dumps of an earlier run in the same folder are moved to a
// folder beside it, with "_previous" at its name.
std::shared_ptr<comm::World> start_world(const JobConfig& config, const comm::Environment& ranks, Device device,
                                         std::function<void(const std::string& line)> on_peer_failure);

// The last collectives of this rank in job.dump_folder under comm.save_traces_folder: flight/dump.h. Nothing happens
// with comm.trace_buf_size = 0 or on one rank. Thread safe; never throws.
void dump_flight_recorder(const JobConfig& config);

// The same for a process that is about to end: once for each folder. A second thread that learns of the failure waits
// until the first has written, so that no thread ends the process while another leaves half a file.
void dump_flights_of_failure(const JobConfig& config);

}  // namespace titanium::train
