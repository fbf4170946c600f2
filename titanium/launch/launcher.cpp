#include "titanium/launch/launcher.h"

#include "titanium/base/log.h"
#include "titanium/comm/error.h"
#include "titanium/launch/failure_watch.h"
#include "titanium/launch/rendezvous.h"
#include "titanium/launch/worker_group.h"

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

// `text` ends with a newline; `rank` is that of which it speaks.
void say(std::string text, int rank, const LaunchOptions& options, const Writer& write) {
  text = "titanium launch: " + text;
  if (options.log_format == LogFormat::kJson) {
    text.pop_back();  // the newline
    text = to_json_line({.level = LogLevel::kError, .source = "launcher", .rank = rank, .message = text}) + "\n";
  }
  write(Stream::kErr, text);
}

void report(const Failure& failure, const LaunchOptions& options, const Writer& write) {
  if (failure.stopped) {
    log_info("Stopped on request: rank {} ended with {}", failure.rank, failure.exit.describe());
    return;
  }
  const bool with_last_lines = options.node_rank == 0 || options.node_rank == failure.node;
  say(failure.report(with_last_lines), failure.rank, options, write);
}

// The failure on which all nodes agree.
std::optional<Failure> agreed_outcome(Rendezvous& rendezvous, const std::optional<Failure>& own, bool stopped) {
  if (own) return rendezvous.publish(*own);
  if (auto elsewhere = rendezvous.failure()) return elsewhere;
  return rendezvous.wait_for_others(stopped);
}

struct Outcome {
  std::optional<Failure> failure;
  bool stopping = false;  // this launcher was asked to stop: no restart
  bool stopped = false;   // a launcher was asked to stop, and all ranks ended well
};

Outcome run_attempt(const LaunchOptions& options, const comm::Environment& node, Rendezvous& rendezvous,
                    const SignalQueue& signals, const Writer& write) {
  std::optional<Failure> own;
  std::optional<FailureWatch> watch;
  if (options.nodes > 1) watch.emplace(rendezvous);
  WorkerGroup workers(options, node, rendezvous.max_restarts(), signals, write);
  workers.run(watch ? watch->fd() : -1, [&](const Failure& failure) {
    own = failure;
    try {
      rendezvous.publish(failure);
    } catch (const Error&) {
      // Time for the other processes here; what is said about it comes below.
    }
  });
  if (workers.stopping() || (watch && watch->saw_stop())) SignalQueue::ignore_further_stops();
  const DefaultSignals no_processes(signals);
  try {
    const std::optional<Failure> failure = agreed_outcome(rendezvous, own, workers.stopping());
    return {failure, workers.stopping(), !failure && rendezvous.stopped_anywhere()};
  } catch (const comm::CommError&) {
    if (own) report(*own, options, write);
    throw;
  } catch (const Error&) {
    if (own) report(*own, options, write);
    rendezvous.leave();  // so that the others find the same in the store
    throw;
  }
}

int run_attempts(const LaunchOptions& options, Rendezvous& rendezvous, const SignalQueue& signals,
                 const Writer& write) {
  for (;;) {
    const comm::Environment node = begin_attempt(options, rendezvous, signals);
    const auto [failure, stopping, stopped] = run_attempt(options, node, rendezvous, signals, write);
    if (failure) report(*failure, options, write);
    if (!failure || failure->stopped || stopping || node.restart_count >= rendezvous.max_restarts()) {
      const DefaultSignals no_processes(signals);
      rendezvous.leave();
      if (stopped && options.stop_code != 0) log_info("Stopped on request: exit code {}", options.stop_code);
      return failure ? failure->exit.exit_code() : stopped ? options.stop_code : 0;
    }
    log_warning("Restarting all ranks: {} of {} restarts", node.restart_count + 1, rendezvous.max_restarts());
  }
}

}  // namespace

int launch(const LaunchOptions& options, const Writer& write) {
  comm::silence_lost_connections();
  const SignalQueue signals;
  Rendezvous rendezvous = meet(options, signals);
  try {
    return run_attempts(options, rendezvous, signals, write);
  } catch (const comm::CommError& error) {
    const std::string text = fmt::format("node 0's launcher is gone, so this one ends too: {}", error.what());
    if (options.stop_code == 0) throw Error(text);
    // It was killed, or is being moved: a cluster manager starts this one again too, and it will meet node 0's
    // successor.
    say(fmt::format("{} Exit code {}.\n", text, options.stop_code), options.node_rank * options.processes, options,
        write);
    return options.stop_code;
  }
}

}  // namespace titanium::launch
