// All processes of a job, and the groups that can be made of them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "titanium/comm/group.h"

namespace titanium::comm {

class World {
 public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The group of the world ranks `members` (ascending, this rank among them) for tensors on this rank's training
  // device. Every member calls it with the same axis and members, in the same order of calls. A group of one does not
  // communicate. Throws CommError that names the missing ranks when they do not arrive within the timeout.
  virtual GroupPtr group(const std::string& axis, const std::vector<int>& members) = 0;
  // The same for tensors in host memory; the host waits for their results.
  virtual GroupPtr host_group(const std::string& axis, const std::vector<int>& members) = 0;
  // The same with a timeout of its own, which `set_timeout` leaves alone: for work that takes its time. `option` is
  // where the user sets it.
  virtual GroupPtr patient_host_group(const std::string& axis, const std::vector<int>& members,
                                      std::chrono::milliseconds timeout, const std::string& option) = 0;

  // For everything from now on, in all groups.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  // Tells all other processes that this one cannot go on and why, so that they end too instead of waiting for it. Does
  // nothing where all ranks live in one process.
  virtual void report_failure(const std::string& reason) = 0;
};

// Any number of ranks in one process, of which this is `rank`: collectives end at once. Results have the right shapes;
// every other rank is taken to hold what this one holds.
std::unique_ptr<World> make_fake_world(int rank, int size);

// `size` ranks as threads of this process, for tests: element r belongs to the thread that plays rank r. CPU tensors.
// When a thread's world is destroyed while others wait for it, they get CommError.
std::vector<std::unique_ptr<World>> make_threaded_worlds(int size);

}  // namespace titanium::comm
