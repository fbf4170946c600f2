// A copy of the state in host memory, so that training can go on while it is written.
#pragma once

#include <future>

#include "titanium/checkpoint/state_dict.h"
#include "titanium/tensor/streams.h"

namespace titanium::checkpoint {

class Staging {
 public:
  // Copies from a GPU go into pinned memory, on a stream of their own, beside the computation. It takes the system
  // seconds to lock that memory, so it is reserved in the background from now on, as much as `like` needs, and kept.
  Staging(Device device, const StateDict& like);

  // The same state with its tensors in host memory. From a GPU it only queues the copies: the tensors of `live` must
  // not change before `hold_updates`, those of the result be read after `wait`. The result must not be used any more
  // when this is called again.
  StateDict copy(const StateDict& live);
  // What the current stream does next waits for the copies; the host does not.
  void hold_updates() { copied_.wait(); }
  // The host waits for the copies. May be called on another thread.
  void wait() { copied_.synchronize(); }

 private:
  Tensor host_memory(size_t place, const Tensor& like);

  bool pinned_;
  SideStream stream_;
  Fence ready_, copied_;
  std::vector<Tensor> kept_;
  std::future<void> reservation_;
};

}  // namespace titanium::checkpoint
