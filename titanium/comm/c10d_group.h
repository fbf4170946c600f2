// Groups over c10d: what the world needs to make and to keep them.
#pragma once

#include "titanium/comm/group.h"
#include "titanium/comm/group_context.h"
#include "titanium/comm/rendezvous/job_store.h"

namespace titanium::comm {

class C10dGroup : public Group {
 public:
  using Group::Group;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
};

struct GroupSpec {
  std::string axis;
  int rank = 0;  // within `members`
  std::vector<int> members;
  std::shared_ptr<const C10dStore> store;  // for the keys of this group alone
  std::shared_ptr<const GroupContext> context;
};

}  // namespace titanium::comm
