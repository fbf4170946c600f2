#include "titanium/launch/launcher.h"

#include "titanium/base/log.h"
#include "titanium/comm/error.h"
#include "titanium/launch/attempt.h"
#include "titanium/launch/failure_watch.h"
#include "titanium/launch/rendezvous.h"

namespace titanium::launch {
namespace {

// A host's store has threads, which must not get signals. A client's has none, and may have to wait long.
Rendezvous meet(const LaunchOptions& options, const SignalQueue& signals) {
  std::optional<DefaultSignals> no_processes;
  if (options.node_rank > 0) no_processes.emplace(signals);
  return Rendezvous(options);
}

comm::Environment begin_attempt(const LaunchOptions& options, Rendezvous& rendezvous, const SignalQueue& signals) {
  const DefaultSignals no_processes(signals);
  comm::Environment node;
  node.restart_count = rendezvous.join();
  node.rank = options.node_rank * options.processes;
  node.world_size = options.nodes * options.processes;
  node.local_world_size = options.processes;
  node.group_rank = options.node_rank;
  node.master_addr = rendezvous.address();
  node.master_port = rendezvous.port();
  node.run_id = rendezvous.run_id();
  node.agent_hosts_store = true;
  log_info("Launching {} rank{} on {} node{}: run {}, attempt {} of {}, store at {}:{}", node.world_size,
           node.world_size == 1 ? "" : "s", options.nodes, options.nodes == 1 ? "" : "s", node.run_id,
           node.restart_count + 1, rendezvous.max_restarts() + 1, node.master_addr, node.master_port);
  return node;
}

// The failure on which all nodes agree. Without node 0's launcher there is only what this node has seen.
std::optional<Failure> agreed_outcome(Rendezvous& rendezvous, const std::optional<Failure>& own) {
  try {
    if (own) return rendezvous.publish(*own);
    if (auto elsewhere = rendezvous.failure()) return elsewhere;
    return rendezvous.wait_for_others();
  } catch (const comm::CommError& error) {
    if (!own) throw Error(fmt::format("the launcher of node 0 has ended without a word: {}", error.what()));
    return own;
  }
}

std::optional<Failure> run_attempt(const LaunchOptions& options, const comm::Environment& node, Rendezvous& rendezvous,
                                   const SignalQueue& signals, const Writer& write) {
  std::optional<Failure> own;
  {
    Attempt attempt(options, node, rendezvous.max_restarts(), signals, write);
    std::optional<FailureWatch> watch;
    if (options.nodes > 1) watch.emplace(rendezvous);
    attempt.run(watch ? watch->fd() : -1, [&](const Failure& failure) {
      own = failure;
      try {
        rendezvous.publish(failure);
      } catch (const comm::CommError&) {
        // The watch sees it too, and the outcome will say so.
      }
    });
  }
  const DefaultSignals no_processes(signals);
  return agreed_outcome(rendezvous, own);
}

void report(const Failure& failure, const LaunchOptions& options, const Writer& write) {
  if (failure.stopped) {
    log_info("Stopped on request: rank {} ended with {}", failure.rank, failure.exit.describe());
    return;
  }
  const bool with_last_lines = options.node_rank == 0 || options.node_rank == failure.node;
  write(Stream::kErr, "titanium launch: " + failure.report(with_last_lines));
}

}  // namespace

int launch(const LaunchOptions& options, const Writer& write) {
  const SignalQueue signals;
  Rendezvous rendezvous = meet(options, signals);
  for (;;) {
    const comm::Environment node = begin_attempt(options, rendezvous, signals);
    const auto failure = run_attempt(options, node, rendezvous, signals, write);
    if (failure) report(*failure, options, write);
    if (!failure || failure->stopped || node.restart_count >= rendezvous.max_restarts()) {
      const DefaultSignals no_processes(signals);
      rendezvous.leave();
      return failure ? failure->exit.exit_code() : 0;
    }
    log_warning("Restarting all ranks: {} of {} restarts", node.restart_count + 1, rendezvous.max_restarts());
  }
}

}  // namespace titanium::launch
