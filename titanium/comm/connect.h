// The world of a real job: one process per rank, over c10d.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "titanium/comm/environment.h"
#include "titanium/comm/world.h"

namespace titanium::comm {

struct ConnectOptions {
  // What carries CUDA tensors. Tensors in host memory always travel by Gloo.
  enum class Carrier { kNccl, kGloo };

  Environment environment;
  Device device = at::kCPU;               // of this rank's training tensors
  Carrier cuda_carrier = Carrier::kNccl;  // kGloo where ranks share a GPU, which NCCL refuses
  // How long to wait for the other processes, and for collectives until World::set_timeout.
  std::chrono::milliseconds init_timeout = std::chrono::seconds(300);
  // Called once, on a thread of its own and maybe before `connect` returns, when another process has died or has
  // reported a failure, with a sentence that says so ("rank 3 died", "rank 3 failed: ..."). A process that waits in a
  // collective cannot be woken: the program logs stop_line (flight_recorder.h) and ends here. Not called for failures
  // of this process.
  std::function<void(std::string)> on_peer_failure;
  // Whether a group of one member uses NCCL or Gloo too, instead of not communicating: for tests on one GPU.
  bool connect_groups_of_one = false;
};

// Returns when all processes are there and know of each other's end (rendezvous/lifeline.h). One process alone opens no
// port. The destructor says goodbye, or reports a failure when an exception unwinds it; on rank 0 it waits up to 10 s
// for the others' goodbyes. From the first call on, the process ignores SIGPIPE unless it handles it. Throws CommError
// that names the ranks that did not arrive, or says why the store is unreachable.
//
// Environment variables that PyTorch's users know: GLOO_SOCKET_IFNAME, TORCH_GLOO_LAZY_INIT, NCCL_*, TORCH_NCCL_* and
// TORCH_FR_* are read by Gloo, NCCL and c10d's C++ classes; USE_LIBUV is read here.
std::unique_ptr<World> connect(const ConnectOptions& options);

}  // namespace titanium::comm
