// What lies between ranks: ports, rates of collectives and of pairs, and the nodes' clocks. All ranks call each
// function together.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "titanium/comm/rendezvous/job_store.h"
#include "titanium/comm/world.h"
#include "titanium/doctor/finding.h"

namespace titanium::doctor {

// Every node's first rank listens at a free port, as Gloo and NCCL do, and those of all other nodes connect to it.
// Findings of this rank, which name the node that it does not reach.
std::vector<Finding> check_ports(const comm::Environment& environment, comm::JobStore& store,
                                 const comm::Deadline& deadline);

// Bus bandwidth of all-reduce, all-gather and all-to-all for several sizes, as nccl-tests define it: what the slowest
// link carries. `carrier` is "NCCL" or "Gloo". With `expected_gbs`, the largest size has to reach it. On rank 0; the
// other ranks get nothing.
std::vector<Finding> measure_collectives(comm::Group& group, Device device, const std::string& carrier,
                                         std::optional<double> expected_gbs);

// Ranks against each other, both directions in turn; a rank has one peer at a time. At most 63 peers of each rank are
// tried. On rank 0 the rate of the middle pair and the slowest pair; a pair below half of the middle one is a
// warning, and so is the rank that all slow pairs have in common.
std::vector<Finding> measure_pairs(comm::Group& group, comm::Group& host_group, Device device,
                                   const std::string& carrier);

// Who plays whom in which round, so that each rank has one peer at a time and has met all others after the last round:
// the peer of `rank`, or -1 when it pauses. There are `world_size` - 1 rounds, and one more for an odd number.
int peer_in_round(int rank, int round, int world_size);

struct PairRate {
  int low = 0, high = 0;  // ranks
  double gbs = 0;
};
Finding judge_pairs(std::vector<PairRate> pairs, const std::string& carrier);

// The clocks of all nodes against rank 0's. On rank 0.
std::vector<Finding> check_clocks(comm::Group& host_group, const comm::Environment& environment);
// `offset` of a node's clock in seconds, known to +- `uncertainty`.
Finding judge_clock(int node, double offset, double uncertainty);

}  // namespace titanium::doctor
