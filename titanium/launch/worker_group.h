// The workers of one attempt of a job on this node: starts the processes, relays their output, and looks after them
// until all have ended.
#pragma once

#include <deque>
#include <functional>

#include "titanium/comm/environment.h"
#include "titanium/launch/child_process.h"
#include "titanium/launch/options.h"
#include "titanium/launch/rank_output.h"
#include "titanium/launch/signals.h"
#include "titanium/launch/supervisor.h"

namespace titanium::launch {

class WorkerGroup {
 public:
  // Starts the processes. `node` is local rank 0 as comm::read_environment will see it. The references must outlive it;
  // what still runs when it is destroyed is killed.
  WorkerGroup(const LaunchOptions& options, const comm::Environment& node, int max_restarts, const SignalQueue& signals,
              const Writer& write);

  // Returns when all processes have ended. `failed_elsewhere` becomes readable when another node has failed; -1: there
  // is no other node. `publish` gets this node's first failure at once.
  using Publish = std::function<void(const Failure&)>;
  void run(int failed_elsewhere, const Publish& publish);

  // Whether the launcher has been asked to stop.
  bool stopping() const { return supervisor_.stopping(); }

 private:
  void wait_for_events(int failed_elsewhere);
  void handle_signals();
  void collect_ended();
  void relay(int local_rank);
  void send_due_signals();
  Failure describe(const Supervisor::End& end) const;

  const LaunchOptions& options_;
  comm::Environment node_;
  const SignalQueue& signals_;
  std::deque<RankOutput> outputs_;
  std::deque<ChildProcess> processes_;
  Supervisor supervisor_;
  bool peer_failed_ = false;
};

}  // namespace titanium::launch
