// Finds out whether a store answers before c10d connects to it: c10d waits long and writes stacks when none does.
#pragma once

#include <chrono>
#include <string>

namespace titanium::comm {

// How long to try.
struct Patience {
  // While the host refuses connections: its store may be about to start.
  std::chrono::milliseconds for_start;
  // While the host cannot be resolved or reached, or something else answers at the port: more time rarely helps.
  std::chrono::milliseconds for_host;

  static constexpr std::chrono::seconds kUsualForHost{30};
};

// Returns when a c10d store answers at address:port. Throws CommError with one sentence: "no store answers at
// node0:29500 within 30 s: the host name cannot be resolved (Name or service not known)."
void wait_for_store(const std::string& address, int port, const Patience& patience);

}  // namespace titanium::comm
