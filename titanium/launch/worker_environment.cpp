#include "titanium/launch/worker_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace titanium::launch {

std::vector<std::string> worker_environment(const comm::Environment& place, int max_restarts, int cores,
                                            const std::vector<std::string>& inherited) {
  std::map<std::string, std::string> variables;
  for (const std::string& variable : inherited) {
    const size_t equals = variable.find('=');
    if (equals != std::string::npos) variables[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  const auto set = [&](const char* name, int value) { variables[name] = std::to_string(value); };
  set("RANK", place.rank);
  set("LOCAL_RANK", place.local_rank);
  set("WORLD_SIZE", place.world_size);
  set("LOCAL_WORLD_SIZE", place.local_world_size);
  set("GROUP_RANK", place.group_rank);
  set("GROUP_WORLD_SIZE", place.world_size / place.local_world_size);
  set("ROLE_RANK", place.rank);
  set("ROLE_WORLD_SIZE", place.world_size);
  variables["ROLE_NAME"] = "rank";
  variables["MASTER_ADDR"] = place.master_addr;
  set("MASTER_PORT", place.master_port);
  set("TORCHELASTIC_RESTART_COUNT", place.restart_count);
  set("TORCHELASTIC_MAX_RESTARTS", max_restarts);
  variables["TORCHELASTIC_RUN_ID"] = place.run_id;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = place.agent_hosts_store ? "True" : "False";
  variables.try_emplace("OMP_NUM_THREADS", std::to_string(std::max(1, cores / place.local_world_size)));

  std::vector<std::string> list;
  for (const auto& [name, value] : variables) list.push_back(fmt::format("{}={}", name, value));
  return list;
}

}  // namespace titanium::launch
