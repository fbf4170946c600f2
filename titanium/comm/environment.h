// Which rank this process is and where it meets the others, read from the variables of whatever started it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace titanium::comm {

struct Environment {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int group_rank = 0;     // of the node
  int restart_count = 0;  // attempts before this one
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string run_id = "none";
  bool agent_hosts_store = false;  // the launcher keeps the store at master_addr:master_port; otherwise rank 0 does
};

// The value of an environment variable; none when it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

// In this order:
//   1. RANK and WORLD_SIZE count, as `titanium launch`, torchrun and PyTorchJob set them. Without LOCAL_RANK and
//      LOCAL_WORLD_SIZE a process is alone on its node (PyTorchJob), unless srun's variables say otherwise.
//   2. srun's variables count where the process is a task of a job step. Without MASTER_ADDR rank 0 is expected on the
//      first node of the step; without MASTER_PORT the port follows from the numbers of job and step. Inside a batch
//      script or an allocation, SLURM's variables alone make no rank.
//   3. Without either there is one process.
// An empty variable counts as missing. Throws UsageError that names the variables when they are malformed, contradict
// each other, or leave open what several ranks need to meet.
Environment read_environment();
Environment read_environment(const Variables& variables);

// The first host of SLURM's compressed list: `gpu003` of `gpu[003-006,010],login1`. Throws UsageError for a list that
// is empty or has unbalanced brackets.
std::string first_host(std::string_view node_list);

}  // namespace titanium::comm
