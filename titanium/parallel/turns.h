// Two pieces of work of which one goes on while the other waits for other ranks.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

namespace titanium::parallel {

// Note [Taking turns]
// A forward and a backward of other micro-batches form a pair (schedule/table.h), and both wait for rows of experts
// again and again. They run on two threads, but one at a time: who has started an exchange passes the turn, and waits
// for the exchange when the turn has come back. So what the other has launched meanwhile, up to its own next exchange,
// lies between the start of an exchange and the wait for it, on the host and in the one queue of the device.
//
// Who passes when follows from the model alone. So collectives are launched in the same order on all ranks, nothing is
// touched by two threads at once, and the results are the bits of one after the other.
class Turns {
 public:
  // Returns when both have ended; `first` begins, on this thread. Throws what either of them has thrown, when both have
  // ended.
  void run(const std::function<void()>& first, const std::function<void()>& second);

  // The other goes on until it passes or ends. Called by the one whose turn it is, on any thread; does nothing when
  // there is no other.
  void pass();

 private:
  void work(int side, const std::function<void()>& piece);
  void wait_for_turn(int side, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  int working_ = 0;  // pieces that have not ended
  int turn_ = 0;
};

}  // namespace titanium::parallel
