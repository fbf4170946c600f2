// What the groups of a world have in common: how long they wait, and how they explain that something failed.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "titanium/comm/error.h"
#include "titanium/comm/rendezvous/lifeline.h"

namespace titanium::comm {

struct Deadline {
  std::chrono::milliseconds timeout;
  std::string option;  // where the user sets it
};

// Thread safe.
class GroupContext {
 public:
  explicit GroupContext(Deadline deadline) : deadline_(std::move(deadline)) {}

  Deadline deadline() const;
  std::chrono::milliseconds timeout() const;
  void set_deadline(Deadline deadline);
  void set_lifeline(const std::shared_ptr<Lifeline>& lifeline);

  // The cause of a back end's failure in words. `peer` is the rank of the world it was talking to, -1 when unknown.
  // When a connection broke, waits shortly for the news who died.
  std::string explain(const std::exception& error, int peer) const;

  // Calls a back end; what that throws becomes a CommError with the cause in words.
  template <typename Function>
  auto explained(int peer, const Function& call) const {
    try {
      return call();
    } catch (const std::exception& error) {
      throw CommError(explain(error, peer));
    }
  }

 private:
  mutable std::mutex mutex_;
  Deadline deadline_;
  std::weak_ptr<Lifeline> lifeline_;
};

// The message of an exception without the stack that c10's carry.
std::string message_of(const std::exception& error);

// "300" or "0.5".
std::string seconds_text(std::chrono::milliseconds time);

}  // namespace titanium::comm
