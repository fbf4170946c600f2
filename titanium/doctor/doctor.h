// Looks at everything outside of Titanium that a run depends on: machines, devices, links, storage, and the files of
// the run. One process alone, or all ranks of a job together.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "titanium/comm/environment.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/doctor/finding.h"

namespace titanium::doctor {

struct Request {
  std::optional<config::LoadedConfig> run = std::nullopt;  // whose data, tokenizer, memory and folders are looked at
  comm::Environment environment = {};                      // of this process
  int64_t storage_bytes = 0;                               // that each rank writes into the checkpoint folder
  std::optional<double> expected_gbs = std::nullopt;       // bus bandwidth of collectives
  std::chrono::seconds timeout{300};                       // for the other ranks to come, and for each collective
  std::function<void(const std::string& line)> on_peer_failure = nullptr;  // as in train::start_world
};

struct Diagnosis {
  std::optional<Report> report;  // on rank 0; on every rank that could not reach the others its own
  int errors = 0;                // of all ranks, the same on all of them
  int warnings = 0;
};

// Takes some seconds. Every rank of the job calls it. Throws nothing for what it finds.
//
// Note [Two stores]
// The job that follows meets at the same address. So that nobody takes doctor's store for the job's, doctor's keys have
// a run name of their own in a launcher's store, and where rank 0 hosts the store, doctor's is at the next port.
Diagnosis examine(const Request& request);

}  // namespace titanium::doctor
