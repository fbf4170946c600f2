// What a machine allows a process and what it calls itself. The judgements are functions of what was found, so that
// every one of them can be tried without such a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "titanium/comm/environment.h"
#include "titanium/doctor/finding.h"

namespace titanium::doctor {

constexpr uint64_t kUnlimited = ~uint64_t{0};

// `limit` is the soft limit of open files. Every rank is connected to all others, over each of its groups.
Finding judge_open_files(uint64_t limit, int world_size);

// Limit of locked memory in bytes. Network cards with RDMA register all buffers that they send from.
Finding judge_locked_memory(uint64_t limit, bool has_rdma);

// Bytes of /dev/shm that are free and in all. NCCL's ranks of one node exchange through it where GPUs have no peer
// access.
Finding judge_shared_memory(uint64_t free_bytes, uint64_t bytes, int local_ranks);

// Whether `name`, which the machine or the job uses for `what`, can be resolved: an error otherwise if it is `needed`.
// Loopback is right for a job of one machine alone.
Finding check_name(const std::string& name, const std::string& what, bool several_machines, bool needed);

// All of the above for this process, and its cores. What belongs to the node is looked at by local rank 0.
std::vector<Finding> check_host(const comm::Environment& environment);

std::string host_name();

}  // namespace titanium::doctor
