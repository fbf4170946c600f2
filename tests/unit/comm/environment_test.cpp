#include "titanium/comm/environment.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "titanium/base/error.h"

namespace titanium::comm {
namespace {

using Values = std::map<std::string, std::string>;

Environment read(const Values& values) {
  return read_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Values& values) {
  try {
    read(values);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

Values with(Values values, const Values& changes) {
  for (const auto& [name, value] : changes) values[name] = value;
  return values;
}

Values without(Values values, const std::string& name) {
  values.erase(name);
  return values;
}

const Values kTorchrun = {{"RANK", "5"},
                          {"LOCAL_RANK", "1"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "1"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29400"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_RUN_ID", "run7"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const Values kSrun = {{"SLURM_PROCID", "5"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NTASKS", "8"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_JOB_ID", "1234"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NODELIST", "gpu[003-004]"},
                      {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}};

const Values kPyTorchJob = {
    {"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};

TEST(Environment, NoVariablesAreOneProcess) {
  const Environment env = read({});
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.local_world_size, 1);
  EXPECT_EQ(env.master_addr, "127.0.0.1");
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_EQ(env.run_id, "none");
  EXPECT_FALSE(env.agent_hosts_store);
  EXPECT_EQ(read({{"RANK", ""}, {"WORLD_SIZE", ""}}).world_size, 1);
  EXPECT_EQ(read({{"LOCAL_RANK", "0"}}).world_size, 1);
}

TEST(Environment, TorchrunsVariablesAreRead) {
  const Environment env = read(kTorchrun);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.group_rank, 1);
  EXPECT_EQ(env.restart_count, 2);
  EXPECT_EQ(env.master_addr, "node0");
  EXPECT_EQ(env.master_port, 29400);
  EXPECT_EQ(env.run_id, "run7");
  EXPECT_TRUE(env.agent_hosts_store);
}

TEST(Environment, APodOfPyTorchJobIsOneNodeWithOneRank) {
  const Environment env = read(kPyTorchJob);
  EXPECT_EQ(env.rank, 1);
  EXPECT_EQ(env.world_size, 3);
  EXPECT_EQ(env.local_rank, 0);
  EXPECT_EQ(env.local_world_size, 1);
  EXPECT_EQ(env.group_rank, 1);
  EXPECT_EQ(env.master_addr, "job-master-0");
  EXPECT_EQ(env.master_port, 23456);
  EXPECT_FALSE(env.agent_hosts_store);
  EXPECT_EQ(read(with(kPyTorchJob, {{"PET_NPROC_PER_NODE", "auto"}, {"PET_NNODES", "3"}})).rank, 1);
}

TEST(Environment, SrunsVariablesAreRead) {
  const Environment env = read(kSrun);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.group_rank, 1);
  EXPECT_EQ(env.master_addr, "gpu003");
  EXPECT_EQ(env.run_id, "1234");
  EXPECT_FALSE(env.agent_hosts_store);
}

TEST(Environment, TheTasksOfAStepAgreeOnAPort) {
  const int port = read(kSrun).master_port;
  EXPECT_EQ(read(with(kSrun, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}})).master_port,
            port);
  EXPECT_NE(read(with(kSrun, {{"SLURM_STEP_ID", "1"}})).master_port, port);
  EXPECT_NE(read(with(kSrun, {{"SLURM_JOB_ID", "1235"}})).master_port, port);
  for (const char* job : {"1", "99999", "67108863", "2147483647"}) {
    const int other = read(with(kSrun, {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", "7"}})).master_port;
    EXPECT_GE(other, 15000);
    EXPECT_LT(other, 32768);
  }
}

TEST(Environment, MasterVariablesWinOverSrun) {
  const Environment env = read(with(kSrun, {{"MASTER_ADDR", "hsn0.gpu003"}, {"MASTER_PORT", "3442"}}));
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.master_addr, "hsn0.gpu003");
  EXPECT_EQ(env.master_port, 3442);
}

TEST(Environment, TheLauncherOfATaskWinsOverSrun) {
  const Environment env = read(with(kSrun, kTorchrun));
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.master_addr, "node0");
  EXPECT_EQ(env.run_id, "run7");
}

TEST(Environment, RankFromAScriptTakesItsPlaceOnTheNodeFromSrun) {
  const Environment env =
      read(with(kSrun, {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "gpu003"}, {"MASTER_PORT", "3442"}}));
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 4);
}

TEST(Environment, UnevenNodesOfAStepHaveTheirOwnSizes) {
  const Values uneven = with(kSrun, {{"SLURM_NTASKS", "11"}, {"SLURM_STEP_TASKS_PER_NODE", "2,4(x2),1"}});
  EXPECT_EQ(read(with(uneven, {{"SLURM_NODEID", "0"}})).local_world_size, 2);
  EXPECT_EQ(read(with(uneven, {{"SLURM_NODEID", "1"}})).local_world_size, 4);
  EXPECT_EQ(read(with(uneven, {{"SLURM_NODEID", "2"}})).local_world_size, 4);
  EXPECT_EQ(read(with(uneven, {{"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}})).local_world_size, 1);
  EXPECT_NE(refusal(with(uneven, {{"SLURM_NODEID", "4"}})).find("SLURM_STEP_TASKS_PER_NODE=2,4(x2),1"),
            std::string::npos);
}

TEST(Environment, ABatchScriptOrAnAllocationIsOneProcess) {
  const Values batch = {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "16"},
                        {"SLURM_NODEID", "0"}, {"SLURM_JOB_ID", "9"},  {"SLURM_NTASKS_PER_NODE", "8"}};
  EXPECT_EQ(read(batch).world_size, 1);
  const Values interactive = with(batch, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NODELIST", "gpu[1-2]"}});
  EXPECT_EQ(read(interactive).world_size, 1);
  EXPECT_EQ(read({{"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "9"}}).world_size, 1);
}

TEST(Environment, OneTaskOfSrunIsOneProcess) {
  const Environment env = read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.local_world_size, 1);
}

struct Refusal {
  Values values;
  std::vector<std::string> names;
};

TEST(Environment, WrongVariablesAreRefusedByName) {
  const std::vector<Refusal> refusals = {
      {with(kTorchrun, {{"WORLD_SIZE", "4"}}), {"RANK=5", "WORLD_SIZE=4"}},
      {without(kTorchrun, "WORLD_SIZE"), {"RANK=5", "WORLD_SIZE is missing"}},
      {without(kTorchrun, "RANK"), {"WORLD_SIZE=8", "RANK is missing"}},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"}},
      {without(kTorchrun, "LOCAL_RANK"), {"LOCAL_WORLD_SIZE=4", "LOCAL_RANK is missing"}},
      {without(kTorchrun, "LOCAL_WORLD_SIZE"), {"LOCAL_RANK=1", "LOCAL_WORLD_SIZE is missing"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), {"LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"}},
      {without(kTorchrun, "MASTER_ADDR"), {"MASTER_ADDR is missing", "rank 5 of 8"}},
      {without(kTorchrun, "MASTER_PORT"), {"MASTER_PORT is missing", "rank 5 of 8"}},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}), {"MASTER_PORT=70000", "65535"}},
      {with(kTorchrun, {{"RANK", "five"}}), {"RANK=five"}},
      {with(kTorchrun, {{"RANK", "-1"}}), {"RANK=-1"}},
      {with(kTorchrun, {{"WORLD_SIZE", "8 "}}), {"WORLD_SIZE=8 "}},
      {with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "x"}}), {"TORCHELASTIC_RESTART_COUNT=x"}},
      {with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "maybe"}}), {"TORCHELASTIC_USE_AGENT_STORE=maybe"}},
      {with(kPyTorchJob, {{"PET_NPROC_PER_NODE", "8"}}), {"PET_NPROC_PER_NODE=8", "LOCAL_RANK"}},
      {{{"PET_NNODES", "4"}}, {"PET_NNODES=4", "RANK", "WORLD_SIZE"}},
      {{{"LOCAL_RANK", "1"}}, {"LOCAL_RANK=1", "RANK and WORLD_SIZE are missing"}},
      {without(kSrun, "SLURM_NTASKS"), {"SLURM_PROCID=5", "SLURM_NTASKS is missing"}},
      {without(kSrun, "SLURM_LOCALID"), {"SLURM_PROCID=5", "SLURM_LOCALID is missing"}},
      {with(kSrun, {{"SLURM_PROCID", "8"}}), {"SLURM_PROCID=8", "SLURM_NTASKS=8"}},
      {with(kSrun, {{"SLURM_LOCALID", "4"}}), {"SLURM_LOCALID=4"}},
      {without(kSrun, "SLURM_STEP_TASKS_PER_NODE"), {"SLURM_STEP_TASKS_PER_NODE"}},
      {with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "4(x"}}), {"SLURM_STEP_TASKS_PER_NODE=4(x"}},
      {without(kSrun, "SLURM_JOB_ID"), {"MASTER_PORT is missing"}},
      {without(kSrun, "SLURM_STEP_NODELIST"), {"MASTER_ADDR is missing"}},
      {with(kSrun, {{"SLURM_STEP_NODELIST", "gpu[003"}}), {"gpu[003"}}};
  for (const auto& [values, names] : refusals) {
    const std::string message = refusal(values);
    for (const std::string& name : names) {
      EXPECT_NE(message.find(name), std::string::npos) << message << " does not name " << name;
    }
  }
}

TEST(FirstHost, IsTheFirstOfSlurmsCompressedLists) {
  EXPECT_EQ(first_host("gpu[003-006,010],login1"), "gpu003");
  EXPECT_EQ(first_host("gpu[010,012-013]"), "gpu010");
  EXPECT_EQ(first_host("login1,gpu[1-2]"), "login1");
  EXPECT_EQ(first_host("gpu-7"), "gpu-7");
  EXPECT_EQ(first_host("rack[0-3]-node[10-12]"), "rack0-node10");
  EXPECT_EQ(first_host("node[7].cluster.org,node8.cluster.org"), "node7.cluster.org");
  for (const char* list : {"", ",a", "gpu[1", "gpu1]", "gpu[[1]"}) EXPECT_THROW(first_host(list), UsageError) << list;
}

}  // namespace
}  // namespace titanium::comm
