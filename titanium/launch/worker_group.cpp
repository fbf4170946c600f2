#include "titanium/launch/worker_group.h"

#include <poll.h>
#include <unistd.h>

#include <array>

#include "titanium/base/machine/usable_cores.h"
#include "titanium/launch/worker_environment.h"

namespace titanium::launch {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> inherited_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

std::filesystem::path log_folder(const LaunchOptions& options, const comm::Environment& node, int rank) {
  if (options.log_dir.empty()) return {};
  return options.log_dir / node.run_id / fmt::format("attempt_{}", node.restart_count) / std::to_string(rank);
}

// Reads what is there. The limit is more than a pipe holds, and keeps a busy rank from holding up the others.
void relay_stream(FileDescriptor& pipe, RankOutput& output, Stream stream) {
  std::array<char, 64 * 1024> buffer;
  for (int round = 0; round < 16 && pipe.get() >= 0; ++round) {
    const ssize_t size = ::read(pipe.get(), buffer.data(), buffer.size());
    if (size < 0) return;
    if (size == 0) pipe = FileDescriptor();
    output.receive(stream, std::string_view(buffer.data(), static_cast<size_t>(size)));
  }
}

int poll_timeout(const std::optional<Clock::time_point>& deadline) {
  if (!deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

}  // namespace

WorkerGroup::WorkerGroup(const LaunchOptions& options, const comm::Environment& node, int max_restarts,
                         const SignalQueue& signals, const Writer& write)
    : options_(options), node_(node), signals_(signals), supervisor_(options.processes) {
  for (int local_rank = 0; local_rank < options.processes; ++local_rank) {
    const int rank = node.rank + local_rank;
    outputs_.emplace_back(rank, options.shown_ranks.contains(rank), log_folder(options, node, rank), write,
                          options.log_format);
  }
  const int cores = usable_cores();
  const std::vector<std::string> inherited = inherited_environment();
  for (int local_rank = 0; local_rank < options.processes; ++local_rank) {
    comm::Environment place = node;
    place.rank += local_rank;
    place.local_rank = local_rank;
    processes_.emplace_back(options.command, worker_environment(place, max_restarts, cores, inherited),
                            signals.original_mask());
  }
}

void WorkerGroup::run(int failed_elsewhere, const Publish& publish) {
  bool published = false;
  while (!supervisor_.finished()) {
    wait_for_events(failed_elsewhere);
    for (int local_rank = 0; local_rank < options_.processes; ++local_rank) relay(local_rank);
    handle_signals();
    const auto failure = supervisor_.first_failure();
    if (failure && !published) {
      published = true;
      publish(describe(*failure));
    }
    send_due_signals();
  }
}

void WorkerGroup::wait_for_events(int failed_elsewhere) {
  std::vector<pollfd> events = {{signals_.fd(), POLLIN, 0}, {peer_failed_ ? -1 : failed_elsewhere, POLLIN, 0}};
  for (ChildProcess& process : processes_) {
    events.push_back({process.out().get(), POLLIN, 0});
    events.push_back({process.err().get(), POLLIN, 0});
  }
  ::poll(events.data(), events.size(), poll_timeout(supervisor_.next_deadline()));
  if ((events[1].revents & POLLIN) != 0) {
    peer_failed_ = true;
    supervisor_.peer_failed(Clock::now());
  }
}

void WorkerGroup::handle_signals() {
  while (const auto signal = signals_.next()) {
    if (*signal == SIGCHLD) {
      collect_ended();
    } else if (*signal == SIGUSR1 || *signal == SIGUSR2) {  // a trainer saves, or dumps its collectives, and goes on
      for (const ChildProcess& process : processes_) process.send(*signal);
    } else {
      // A trainer ends its step on SIGTERM; a terminal that was closed should not cost more.
      supervisor_.stop_requested(*signal == SIGHUP ? SIGTERM : *signal, Clock::now());
      send_due_signals();
    }
  }
}

void WorkerGroup::collect_ended() {
  std::vector<Supervisor::End> ends;
  for (int local_rank = 0; local_rank < options_.processes; ++local_rank) {
    const auto exit = processes_[static_cast<size_t>(local_rank)].take_exit();
    if (!exit) continue;
    relay(local_rank);
    outputs_[static_cast<size_t>(local_rank)].finish();
    ends.push_back({local_rank, *exit});
  }
  supervisor_.processes_ended(std::move(ends), Clock::now());
}

void WorkerGroup::relay(int local_rank) {
  ChildProcess& process = processes_[static_cast<size_t>(local_rank)];
  RankOutput& output = outputs_[static_cast<size_t>(local_rank)];
  relay_stream(process.out(), output, Stream::kOut);
  relay_stream(process.err(), output, Stream::kErr);
}

void WorkerGroup::send_due_signals() {
  while (const auto signal = supervisor_.due_signal(Clock::now())) {
    for (const ChildProcess& process : processes_) process.send(*signal);
  }
}

Failure WorkerGroup::describe(const Supervisor::End& end) const {
  Failure failure;
  failure.node = node_.group_rank;
  failure.rank = node_.rank + end.local_rank;
  failure.pid = processes_[static_cast<size_t>(end.local_rank)].pid();
  failure.exit = end.exit;
  failure.stopped = supervisor_.stopping();
  failure.last_lines = outputs_[static_cast<size_t>(end.local_rank)].last_lines();
  failure.log_folder = log_folder(options_, node_, failure.rank).string();
  return failure;
}

}  // namespace titanium::launch
