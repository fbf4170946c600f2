// Groups over Gloo: tensors in host memory, or CUDA tensors by way of host memory.
#pragma once

#include "titanium/comm/c10d_group.h"

namespace titanium::comm {

// The network device of this process, which all its groups share: of the interfaces that GLOO_SOCKET_IFNAME names, else
// at the given address, else as PyTorch chooses it: at the address that the host name stands for, else at loopback.
class GlooNetwork {
 public:
  // `address` is one of this machine's; empty: none is known to be better than the host name's. Throws CommError when
  // an interface that GLOO_SOCKET_IFNAME names does not exist.
  explicit GlooNetwork(const std::string& address);
  ~GlooNetwork();

  // "tcp, iface=eth0, addr=[10.0.0.1]", of each device.
  std::string description() const;

  // Connects to all other members. CUDA tensors are copied to pinned memory when a collective is issued (the host waits
  // for the current stream) and back in `wait`: for several ranks on one GPU, which NCCL refuses.
  std::shared_ptr<C10dGroup> make_group(const GroupSpec& spec) const;

 private:
  struct Devices;
  std::unique_ptr<Devices> devices_;
};

}  // namespace titanium::comm
