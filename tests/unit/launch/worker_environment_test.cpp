#include "titanium/launch/worker_environment.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace titanium::launch {
namespace {

comm::Environment place() {
  comm::Environment env;
  env.rank = 5;
  env.local_rank = 1;
  env.world_size = 8;
  env.local_world_size = 4;
  env.group_rank = 1;
  env.restart_count = 2;
  env.master_addr = "node0";
  env.master_port = 29400;
  env.run_id = "run7";
  env.agent_hosts_store = true;
  return env;
}

std::optional<std::string> value(const std::vector<std::string>& variables, const std::string& name) {
  for (const std::string& variable : variables) {
    if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
  }
  return std::nullopt;
}

TEST(WorkerEnvironment, IsReadAsItWasMeant) {
  const auto variables = worker_environment(place(), 3, 16, {"RANK=99", "LOCAL_RANK=x", "HOME=/h=1"});
  const auto read = comm::read_environment([&](const std::string& name) { return value(variables, name); });
  EXPECT_EQ(read.rank, 5);
  EXPECT_EQ(read.local_rank, 1);
  EXPECT_EQ(read.world_size, 8);
  EXPECT_EQ(read.local_world_size, 4);
  EXPECT_EQ(read.group_rank, 1);
  EXPECT_EQ(read.restart_count, 2);
  EXPECT_EQ(read.master_addr, "node0");
  EXPECT_EQ(read.master_port, 29400);
  EXPECT_EQ(read.run_id, "run7");
  EXPECT_TRUE(read.agent_hosts_store);
  EXPECT_EQ(value(variables, "HOME"), "/h=1");
  EXPECT_EQ(value(variables, "TORCHELASTIC_MAX_RESTARTS"), "3");
  EXPECT_EQ(value(variables, "GROUP_WORLD_SIZE"), "2");
}

TEST(WorkerEnvironment, CoresAreSharedUnlessTheUserSaysOtherwise) {
  EXPECT_EQ(value(worker_environment(place(), 0, 16, {}), "OMP_NUM_THREADS"), "4");
  EXPECT_EQ(value(worker_environment(place(), 0, 2, {}), "OMP_NUM_THREADS"), "1");
  EXPECT_EQ(value(worker_environment(place(), 0, 16, {"OMP_NUM_THREADS=7"}), "OMP_NUM_THREADS"), "7");
}

}  // namespace
}  // namespace titanium::launch
