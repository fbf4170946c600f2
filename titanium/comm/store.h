// A key-value store over TCP that processes of one job share: c10d's TCPStore.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace titanium::comm {

// One process hosts it, all others connect. Any thread may call; calls of one object wait for each other. All functions
// throw CommError when the host is gone.
class Store {
 public:
  // Hosts a store on all interfaces and connects to it as `address`. Throws UsageError when the port is taken.
  static Store host(const std::string& address, int port);
  // Hosts a store that only this machine reaches, on a free port.
  static Store host_locally();
  // Tries until `timeout` has passed, then throws CommError.
  static Store connect(const std::string& address, int port, std::chrono::milliseconds timeout);

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
