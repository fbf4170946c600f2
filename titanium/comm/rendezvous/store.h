// A key-value store over TCP that processes of one job share: c10d's TCPStore.
//
// Whoever reaches its port can read and change everything in it, because c10d's protocol knows no secrets. So it
// listens at the address that it was given and at no other: a job of one machine at 127.0.0.1, which other machines do
// not reach. What is read from it may come from a stranger, and is to be checked. Let only the job's machines reach the
// port of a job of several.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "titanium/comm/rendezvous/socket.h"
#include "titanium/comm/rendezvous/store_search.h"

namespace titanium::comm {

// One process hosts it, all others connect. Any thread may call; calls of one object wait for each other. All functions
// throw CommError when the host is gone.
class Store {
 public:
  // Hosts a store at `address` alone (listen_at in socket.h) and connects to it. Throws UsageError when the port is
  // taken or the address is not one of this machine.
  static Store host(const std::string& address, int port, Reach reach);
  // Hosts a store that only this machine reaches, on a free port.
  static Store host_locally();
  // Tries as long as `patience` says, then throws CommError.
  static Store connect(const std::string& address, int port, const Patience& patience);

  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) = delete;

  const std::string& address() const;
  int port() const;

  // Does not wait until the value has arrived.
  void set(const std::string& key, const std::string& value);
  // The value that the key has afterwards: `value`, unless there was another one.
  std::string set_once(const std::string& key, const std::string& value);
  bool has(const std::string& key) const;
  // Waits for the key; throws CommError after `timeout`.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) const;
  // Adds to a number that starts at 0; the sum.
  int64_t add(const std::string& key, int64_t amount);

 private:
  struct Connection;
  explicit Store(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

// c10d writes a stack to stderr whenever a connection ends, which says less than the CommError that follows. From now
// on this process sees only c10d's errors, unless the user has set TORCH_CPP_LOG_LEVEL.
void silence_lost_connections();

}  // namespace titanium::comm
