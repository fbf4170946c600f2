// The launchers of a job's nodes: they meet in a store that node 0 hosts, begin and end every attempt together, and
// agree on the failure that ended it. The ranks use the same store. A job of one node has nothing to agree on.
//
// All functions throw comm::CommError when node 0's launcher is gone, and Error when something that is no launcher has
// written to the store.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "titanium/comm/rendezvous/store.h"
#include "titanium/launch/failure.h"
#include "titanium/launch/heartbeats.h"
#include "titanium/launch/options.h"

namespace titanium::launch {

class Rendezvous {
 public:
  // Hosts the store on node 0, connects elsewhere. Throws UsageError when the port is taken, Error when node 0 does not
  // answer in time.
  explicit Rendezvous(const LaunchOptions& options);

  // Begins the next attempt once all nodes are here; its number, from 0. Throws Error that names the missing nodes,
  // UsageError when nodes contradict each other. A launcher that was started anew joins the attempt that the others are
  // about to begin: Note [Successors].
  int join();

  int nodes() const { return options_.nodes; }
  const std::string& address() const { return store_.address(); }
  int port() const { return store_.port(); }
  // Node 0's; known after `join`.
  const std::string& run_id() const { return run_id_; }
  int max_restarts() const { return max_restarts_; }

  // Tells all nodes about a failure in the present attempt. The attempt's first failure.
  Failure publish(const Failure& failure);
  // The present attempt's first failure on any node, if there is one. From any thread.
  std::optional<Failure> failure() const;
  // Says that this launcher lives.
  void beat();
  // On node 0: publishes the failure of a node that has been silent for too long. Elsewhere nothing.
  void report_silence(Heartbeats& heartbeats);
  // All ranks of this node have ended well, because this launcher was asked to stop or by themselves: waits until those
  // of all nodes have. The failure, if one ended otherwise.
  std::optional<Failure> wait_for_others(bool stopped);
  // Whether a launcher was asked to stop. To be called after wait_for_others.
  bool stopped_anywhere() const;
  // The job is over. Node 0 waits a little until all others know, since they cannot ask after it.
  void leave();

 private:
  std::string key(const std::string& name) const;
  std::string key(const std::string& name, int node) const;
  std::vector<int> missing(const std::string& name) const;
  using Time = std::chrono::steady_clock::time_point;
  // True when all nodes have set `name` in time. Beats meanwhile.
  bool wait_for_all(const std::string& name, Time deadline);
  int present_attempt() const;
  // False when this node's part in the present attempt is over.
  bool announce();
  bool takes_over();
  void wait_for_next_attempt(Time deadline);
  void adopt_and_check();

  // What a launcher says about itself.
  struct Node {
    int nodes, processes, max_restarts;
    std::string run_id;
  };
  Node read_node(int node) const;
  Failure read_failure(const std::string& text) const;
  [[noreturn]] void refuse_entry(const std::string& key) const;

  LaunchOptions options_;
  comm::Store store_;
  int attempt_ = -1;
  std::string run_id_;
  int max_restarts_ = 0;
  bool stopped_ = false;
};

}  // namespace titanium::launch
