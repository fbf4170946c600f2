// Decides when the processes of a node get which signal. Knows no processes and no clock of its own.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "titanium/launch/failure.h"

namespace titanium::launch {

// After a failure, here or on another node, the living processes have `to_end_alone` to notice and say so; then they
// get SIGTERM, and `after_sigterm` later SIGKILL. A signal for the launcher is forwarded, and the processes may take
// their time to end (a trainer finishes its step and saves it). All SIGTERMs are one request, because cluster managers
// send several; a second SIGINT is a person who does not want to wait: it is forwarded too, and SIGKILL follows
// `after_sigterm` later.
class Supervisor {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kToEndAlone{10};
  static constexpr std::chrono::seconds kAfterSigterm{5};

  explicit Supervisor(int processes) : living_(static_cast<size_t>(processes), true) {}

  // The processes that were found ended at the same moment. Among them one that a signal killed is taken to be the
  // cause of the others' ends.
  struct End {
    int local_rank;
    ExitStatus exit;
  };
  void processes_ended(std::vector<End> ends, Time now);
  // A process of another node has failed. Processes that end here from now on are its consequence.
  void peer_failed(Time now);
  // `signal` is SIGTERM or SIGINT.
  void stop_requested(int signal, Time now);

  // The signal that all living processes should get now; each is given once.
  std::optional<int> due_signal(Time now);
  // When to ask again, if nothing else happens.
  std::optional<Time> next_deadline() const;

  bool finished() const;
  bool stopping() const { return sigterm_received_ || sigints_ > 0; }
  // The first failure on this node, unless another node failed before.
  std::optional<End> first_failure() const { return first_failure_; }

 private:
  void end_others(Time now);

  std::vector<bool> living_;
  std::optional<End> first_failure_;
  bool peer_failed_ = false;
  std::optional<Time> sigterm_at_;
  std::optional<Time> sigkill_at_;
  bool sigterm_received_ = false;
  int sigints_ = 0;
  int forward_ = 0;
};

}  // namespace titanium::launch
