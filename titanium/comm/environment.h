// What the launcher tells a process about its place in the job.
#pragma once

#include <string>

namespace titanium::comm {

struct Environment {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int group_rank = 0;
  int restart_count = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string run_id = "none";
  bool agent_hosts_store = false;
};

}  // namespace titanium::comm
