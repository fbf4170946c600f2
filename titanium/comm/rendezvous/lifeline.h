// How every process of a job learns within seconds that one of them has failed, whatever it is doing.
//
// Rank 0 runs a LifelineHub; every rank, also rank 0, holds one Lifeline to it: a plain TCP connection that a thread
// watches. The kernel closes the connection when a process dies, by kill -9 too, and keeps it open while a process is
// only stopped. So a connection that ends without a goodbye is a death, and the hub tells everybody. A machine that
// vanishes from the network is noticed after 25 s.
//
// Note [Strangers]
// A connection says hello with its rank and that rank's secret before it counts. Until then it may send one short line
// within a few seconds, and only a limited number of such connections is held; others wait in the kernel's queue. When
// all ranks are there, the port is closed. The hub listens where the ranks need it: at 127.0.0.1 for a job of one
// machine. Each rank makes its own secret and puts only the fingerprint into the store, from where rank 0 takes all
// fingerprints when all ranks have arrived. So reading the store does not help to take a rank's place. Who can write
// into the store can end the job, with or without a lifeline, and nothing is encrypted: who can read the network reads
// the secrets and the messages. Let only the job's machines reach its ports.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "titanium/comm/rendezvous/socket.h"
#include "titanium/comm/rendezvous/store_search.h"

namespace titanium::comm {

class LifelineHub {
 public:
  // Serves as many ranks as there are fingerprints, those of the ranks' secrets, at `listener`, which it closes when
  // all have come. A connection that has not said hello after `greeting_time` is closed. Throws Error.
  LifelineHub(std::vector<std::string> fingerprints, Listener listener,
              std::chrono::milliseconds greeting_time = std::chrono::seconds(10));
  // Waits up to `goodbye_timeout` for the goodbyes of those that are still connected, so that nobody takes the normal
  // end of rank 0 for a death; not after a failure.
  ~LifelineHub();
  LifelineHub(const LifelineHub&) = delete;
  LifelineHub& operator=(const LifelineHub&) = delete;

  int port() const { return listener_.port; }

  // Returns when the news of a failure has gone out to all, or after `timeout`: this process may end then.
  void wait_until_told(std::chrono::milliseconds timeout);

  std::chrono::milliseconds goodbye_timeout = std::chrono::seconds(10);

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Peer {
    LineSocket socket;
    Time greeting_deadline;
    int rank = -1;  // a stranger until it has said hello
    bool left = false;
  };

  void serve();
  // Never throws: what fails, for lack of memory, is tried again a little later.
  void poll_once(std::chrono::milliseconds timeout) noexcept;
  void serve_peers(std::chrono::milliseconds timeout);
  void accept_strangers();
  bool accepting(Time now) const;
  Time next_deadline(Time now) const;
  void read(Peer& peer);
  void handle(Peer& peer, const std::string& line);
  void greet(Peer& peer, const std::string& line);
  std::optional<size_t> rank_of(const std::string& line) const;
  void tell_all(int failed_rank, const std::string& news);
  bool all_left() const;
  size_t strangers() const;

  std::vector<std::string> fingerprints_;  // of each rank
  Listener listener_;
  std::chrono::milliseconds greeting_time_;
  WakePipe wake_;
  std::vector<Peer> peers_;  // only the thread touches these
  std::vector<bool> greeted_;
  Time accept_after_{};
  bool failed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool told_ = false;
  bool closing_ = false;
  std::thread thread_;
};

class Lifeline {
 public:
  // Connects to the one of `hosts` where the hub answers, which knows the fingerprint of `secret`. `on_failure` is
  // called at most once, on the thread that watches, with "rank 3 died" or "rank 3 failed: ...". Throws Error when no
  // hub answers in time: a host that cannot be connected to is given up earlier, since the hub listens before.
  Lifeline(int rank, const std::vector<std::string>& hosts, int port, const std::string& secret,
           const Patience& patience, std::function<void(std::string)> on_failure);
  // Says goodbye. `on_failure` is not called afterwards; it may not destroy the Lifeline itself.
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // Tells all other ranks; `on_failure` is not called any more. Thread safe.
  void report_failure(const std::string& reason);
  // What `on_failure` was called with, after it has returned, waiting for that up to `timeout`: a program that ends in
  // `on_failure` says only there what happened. Thread safe.
  std::optional<std::string> wait_for_news(std::chrono::milliseconds timeout);

 private:
  // Empty when `host` is not the one; `cause` says why.
  std::optional<LineSocket> greet(const std::string& host, int port, const std::string& hello, std::string& cause,
                                  bool& connected) const;
  void watch();
  void tell(const std::string& news);

  std::optional<LineSocket> socket_;
  WakePipe wake_;
  std::function<void(std::string)> on_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> news_;
  bool closing_ = false;
  std::atomic<bool> failed_ = false;
  std::thread thread_;
};

}  // namespace titanium::comm
