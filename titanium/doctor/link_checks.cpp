#include "titanium/doctor/link_checks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "titanium/comm/error.h"
#include "titanium/comm/rendezvous/socket.h"
#include "titanium/comm/text_collectives.h"
#include "titanium/doctor/host_checks.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::doctor {
namespace {

using Clock = std::chrono::steady_clock;

std::string size_text(int64_t bytes) {
  return bytes < 1 << 20 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

void wait_for(Device device) {
  if (device.is_cuda()) synchronize_gpu();
}

// Seconds per call of the slowest rank.
template <typename Call>
double seconds_per_call(comm::Group& group, Device device, int calls, const Call& call) {
  call();
  wait_for(device);
  group.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  wait_for(device);
  Tensor seconds = at::zeros({1}, at::TensorOptions().device(device).dtype(at::kDouble));
  seconds.fill_(std::chrono::duration<double>(Clock::now() - begin).count());
  group.all_reduce(seconds, comm::Reduce::kMax)->wait();
  return seconds.item<double>() / calls;
}

struct Collective {
  const char* name;
  double traffic;  // bytes over the slowest link, per byte of the whole buffer
  std::function<void(const Tensor& whole, const Tensor& part, const Tensor& other)> run;
};

std::vector<Collective> collectives(comm::Group& group) {
  const double ranks = group.size();
  return {
      {"all-reduce", 2 * (ranks - 1) / ranks,
       [&](const Tensor& whole, const Tensor&, const Tensor&) { group.all_reduce(whole, comm::Reduce::kSum)->wait(); }},
      {"all-gather", (ranks - 1) / ranks,
       [&](const Tensor& whole, const Tensor& part, const Tensor&) { group.all_gather(whole, part)->wait(); }},
      {"all-to-all", (ranks - 1) / ranks, [&](const Tensor& whole, const Tensor& part, const Tensor& other) {
         const std::vector<int64_t> rows(static_cast<size_t>(group.size()), part.numel());
         group.all_to_all(other, whole, rows, rows)->wait();
       }}};
}

Finding measure(comm::Group& group, Device device, const Collective& collective, const std::string& carrier,
                std::optional<double> expected_gbs) {
  const std::vector<int64_t> sizes = device.is_cuda() ? std::vector<int64_t>{1 << 20, 16 << 20, 256 << 20}
                                                      : std::vector<int64_t>{64 << 10, 1 << 20, 8 << 20};
  Finding finding{.check = fmt::format("{} {}", carrier, collective.name)};
  double gbs = 0;
  for (const int64_t bytes : sizes) {
    const int64_t part_elements = std::max<int64_t>(1, bytes / 4 / group.size());
    const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
    const Tensor whole = at::zeros({part_elements * group.size()}, options), other = at::zeros_like(whole);
    const Tensor part = at::zeros({part_elements}, options);
    const double seconds =
        seconds_per_call(group, device, bytes < 4 << 20 ? 10 : 4, [&] { collective.run(whole, part, other); });
    gbs = collective.traffic * static_cast<double>(whole.nbytes()) / seconds / 1e9;
    finding.fact += fmt::format("{}{}: {:.3g}", finding.fact.empty() ? "" : ", ", size_text(bytes), gbs);
    finding.figures[fmt::format("bus_gbs_{}", bytes)] = gbs;
  }
  finding.fact += " GB/s of bus bandwidth";
  if (expected_gbs) {
    finding.figures["expected"] = *expected_gbs;
    finding.fact += fmt::format(", at least {:.3g} expected of the largest", *expected_gbs);
    if (gbs < *expected_gbs) {
      finding.severity = Severity::kWarning;
      finding.remedy =
          "Check the interfaces (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), that NCCL uses the fast network "
          "(NCCL_DEBUG=INFO), "
          "and the slowest pair.";
    }
  }
  return finding;
}

// Both directions, one after the other; bytes per second of one.
double pair_rate(comm::Group& group, Device device, int peer) {
  const int64_t bytes = device.is_cuda() ? 64 << 20 : 2 << 20;
  constexpr int kTurns = 4;
  const Tensor buffer = at::empty({bytes}, at::TensorOptions().device(device).dtype(at::kByte));
  const bool first = group.rank() < peer;
  const auto exchange = [&] {
    (first ? group.send(buffer, peer) : group.receive(buffer, peer))->wait();
    (first ? group.receive(buffer, peer) : group.send(buffer, peer))->wait();
    wait_for(device);
  };
  exchange();
  const auto begin = Clock::now();
  for (int turn = 0; turn < kTurns; ++turn) exchange();
  return 2.0 * kTurns * static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - begin).count();
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// How far rank `peer`'s clock is ahead of this one's, from the exchange that took least time.
std::pair<double, double> clock_offset(comm::Group& group, int peer) {
  Tensor time = at::zeros({1}, at::kDouble);
  std::pair<double, double> best{0, 1e9};
  for (int turn = 0; turn < 8; ++turn) {
    const double asked = wall_clock();
    group.send(time, peer)->wait();
    group.receive(time, peer)->wait();
    const double answered = wall_clock(), uncertainty = (answered - asked) / 2;
    if (uncertainty < best.second) best = {time.item<double>() - (asked + answered) / 2, uncertainty};
  }
  return best;
}

void tell_clock(comm::Group& group) {
  Tensor time = at::zeros({1}, at::kDouble);
  for (int turn = 0; turn < 8; ++turn) {
    group.receive(time, 0)->wait();
    time.fill_(wall_clock());
    group.send(time, 0)->wait();
  }
}

}  // namespace

std::vector<Finding> check_ports(const comm::Environment& environment, comm::JobStore& store,
                                 const comm::Deadline& deadline) {
  std::vector<int> all(static_cast<size_t>(environment.world_size));
  for (size_t rank = 0; rank < all.size(); ++rank) all[rank] = static_cast<int>(rank);
  const bool first = environment.local_rank == 0;
  std::optional<comm::Listener> listener;
  std::string note = "none";
  if (first) {
    listener = comm::listen_towards(environment.master_addr, comm::reach_of(environment));
    note = fmt::format("{} {}", listener->port, listener->address.empty() ? host_name() : listener->address);
  }
  store.meet("doctor/ports", " for the check of ports", all, deadline, note);
  std::vector<Finding> findings;
  int reached = 0;
  for (const int rank : all) {
    if (!first || rank == environment.rank) continue;
    std::istringstream entry(store.get(fmt::format("doctor/ports/{}", rank), deadline));
    int port = 0;
    std::string host;
    if (!(entry >> port >> host)) continue;
    try {
      comm::connect_to(host, port, std::chrono::seconds(5));
      ++reached;
    } catch (const comm::ConnectError& error) {
      findings.push_back(
          {.check = "ports",
           .severity = Severity::kError,
           .fact = fmt::format("{} does not reach rank {} at {}:{} ({})", host_name(), rank, host, port, error.cause),
           .remedy =
               "Open all ports between the job's nodes in the firewall or network policy, and check the interfaces."});
    }
  }
  store.meet("doctor/ports_tried", " after the check of ports", all, deadline);
  if (first && findings.empty())
    findings.push_back({.check = "ports", .fact = fmt::format("{} other node(s) reached", reached)});
  return findings;
}

std::vector<Finding> measure_collectives(comm::Group& group, Device device, const std::string& carrier,
                                         std::optional<double> expected_gbs) {
  std::vector<Finding> findings;
  for (const Collective& collective : collectives(group)) {
    findings.push_back(measure(group, device, collective, carrier, expected_gbs));
  }
  return group.rank() == 0 ? findings : std::vector<Finding>{};
}

int peer_in_round(int rank, int round, int world_size) {
  // The last place stays, the others turn around it; with an odd number it is empty.
  const int places = world_size + world_size % 2, turning = places - 1;
  const auto real = [&](int peer) { return peer < world_size ? peer : -1; };
  const int opposite_of_last = round % turning;
  if (rank == turning) return real(opposite_of_last);
  if (rank == opposite_of_last) return real(turning);
  return (2 * round - rank % turning + 2 * turning) % turning;
}

Finding judge_pairs(std::vector<PairRate> pairs, const std::string& carrier) {
  std::ranges::sort(pairs, {}, &PairRate::gbs);
  const PairRate& slowest = pairs.front();
  const double middle = pairs[pairs.size() / 2].gbs;
  Finding finding{.check = fmt::format("{} pairs", carrier),
                  .fact = fmt::format("{} pair(s), middle {:.3g} GB/s, slowest ranks {} and {} with {:.3g}",
                                      pairs.size(), middle, slowest.low, slowest.high, slowest.gbs),
                  .figures = {{"middle_gbs", middle},
                              {"slowest_gbs", slowest.gbs},
                              {"slowest_low", slowest.low},
                              {"slowest_high", slowest.high}}};
  std::set<int> common = {slowest.low, slowest.high};
  int slow = 0;
  for (const PairRate& pair : pairs) {
    if (pair.gbs >= 0.5 * middle) break;
    ++slow;
    std::erase_if(common, [&](int rank) { return rank != pair.low && rank != pair.high; });
  }
  if (slow == 0) return finding;
  finding.severity = Severity::kWarning;
  if (slow > 1 && common.size() == 1)
    finding.fact += fmt::format("; rank {} is in all {} slow pairs", *common.begin(), slow);
  finding.remedy = "Look at the link, the interface and the node of the slowest pair, or leave the node out.";
  return finding;
}

std::vector<Finding> measure_pairs(comm::Group& group, comm::Group& host_group, Device device,
                                   const std::string& carrier) {
  constexpr int kMostRounds = 63;
  const int rounds = std::min(kMostRounds, group.size() - 1 + group.size() % 2);
  std::string own;
  for (int round = 0; round < rounds; ++round) {
    const int peer = peer_in_round(group.rank(), round, group.size());
    if (peer >= 0) {
      const double rate = pair_rate(group, device, peer) / 1e9;
      if (group.rank() < peer) own += fmt::format("{} {} {}\n", group.rank(), peer, rate);
    }
    group.barrier();
  }
  std::vector<PairRate> pairs;
  for (const std::string& text : comm::gather_texts(host_group, own)) {
    std::istringstream lines(text);
    for (PairRate pair; lines >> pair.low >> pair.high >> pair.gbs;) pairs.push_back(pair);
  }
  return pairs.empty() ? std::vector<Finding>{} : std::vector{judge_pairs(std::move(pairs), carrier)};
}

Finding judge_clock(int node, double offset, double uncertainty) {
  Finding finding{.check = "clocks",
                  .fact = fmt::format("node {} is {:+.3f} s from node 0, +- {:.3f} s", node, offset, uncertainty),
                  .figures = {{"offset_seconds", offset}, {"uncertainty_seconds", uncertainty}}};
  if (std::abs(offset) - uncertainty > 1) {
    finding.severity = Severity::kWarning;
    finding.remedy = "Logs, time limits and file times will disagree: let chrony or ntpd set the clock of that node.";
  }
  return finding;
}

std::vector<Finding> check_clocks(comm::Group& host_group, const comm::Environment& environment) {
  const Tensor local_ranks = at::zeros({host_group.size()}, at::kLong);  // nodes may have different numbers of ranks
  host_group.all_gather(local_ranks, at::zeros({1}, at::kLong).fill_(environment.local_rank))->wait();
  if (environment.rank != 0) {
    if (environment.local_rank == 0) tell_clock(host_group);
    return {};
  }
  std::vector<Finding> findings;
  for (int rank = 1; rank < host_group.size(); ++rank) {
    if (local_ranks[rank].item<int64_t>() != 0) continue;
    const auto [offset, uncertainty] = clock_offset(host_group, rank);
    findings.push_back(judge_clock(static_cast<int>(findings.size()) + 1, offset, uncertainty));
  }
  return findings;
}

}  // namespace titanium::doctor
