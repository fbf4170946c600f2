// The table of keys and values that all processes of a job share while they find each other. What store.h says about
// strangers counts here too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "titanium/comm/environment.h"
#include "titanium/comm/group_context.h"
#include "titanium/comm/rendezvous/socket.h"

namespace titanium::comm {

struct C10dStore;  // c10d_store.h

// Where the ranks of the job run.
Reach reach_of(const Environment& environment);

class JobStore {
 public:
  // A c10d TCPStore at master_addr:master_port and no other address, which rank 0 hosts unless an agent does. Keys
  // belong to one attempt of one run: a restarted job never sees old ones. Throws CommError when the store cannot be
  // reached in time.
  JobStore(const Environment& environment, const Deadline& deadline);

  void set(const std::string& key, const std::string& value);
  // Waits for the key. Throws CommError.
  std::string get(const std::string& key, const Deadline& deadline);

  // Returns when all `members` have called it for the same `key`, each once. Throws CommError that names those who have
  // not: "ranks 3 and 5 of 8 did not arrive at 10.0.0.1:29500 <purpose> within ...". The others then find this rank's
  // `note` at "<key>/<rank>".
  void meet(const std::string& key, const std::string& purpose, const std::vector<int>& members,
            const Deadline& deadline, const std::string& note = "here");

  // For a process group: the same store, with `name` before all keys.
  std::shared_ptr<const C10dStore> part(const std::string& name, const Deadline& deadline) const;

 private:
  std::vector<int> missing(const std::string& key, const std::vector<int>& members);
  std::string describe_missing(const std::string& key, const std::string& purpose, const std::vector<int>& members,
                               const Deadline& deadline);

  Environment environment_;
  std::string address_;
  std::shared_ptr<const C10dStore> store_;
};

}  // namespace titanium::comm
