#include "titanium/comm/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "titanium/base/error.h"

namespace titanium::comm {
namespace {

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Variables with the checks that every source needs.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> text(const std::string& name) const {
    auto value = variables_(name);
    if (value && value->empty()) value.reset();
    return value;
  }

  bool has(const std::string& name) const { return text(name).has_value(); }

  std::optional<int> number(const std::string& name, int64_t lowest, int64_t highest) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = parse_number(*value);
    if (!parsed || *parsed < lowest || *parsed > highest) {
      refuse("the environment variable {}={} should be a number from {} to {}.", name, *value, lowest, highest);
    }
    return static_cast<int>(*parsed);
  }

  std::optional<int> count(const std::string& name) const { return number(name, 1, INT32_MAX); }
  std::optional<int> index(const std::string& name) const { return number(name, 0, INT32_MAX); }

  std::string all_of(std::initializer_list<const char*> names) const {
    std::string list;
    for (const char* name : names) {
      if (const auto value = text(name)) list += fmt::format("{}{}={}", list.empty() ? "" : ", ", name, *value);
    }
    return list;
  }

 private:
  const Variables& variables_;
};

void check_index(const char* name, int index, const char* size_name, int size) {
  if (index >= size)
    refuse("{}={} contradicts {}={}: it should be from 0 to {}.", name, index, size_name, size, size - 1);
}

// A process that srun started, as opposed to a shell in an allocation: only steps have SLURM_STEP_* variables, and the
// shell of `salloc` may run in a step of its own with a reserved number.
bool is_srun_task(const Reader& read) {
  constexpr int64_t kFirstReservedStep = 0xfffffff0;
  if (!read.has("SLURM_PROCID")) return false;
  if (const auto step = read.text("SLURM_STEP_ID")) {
    const auto number = parse_number(*step);
    return number && *number < kFirstReservedStep;
  }
  return read.has("SLURM_STEP_NODELIST") || read.has("SLURM_STEP_NUM_TASKS");
}

// Element `node` of SLURM's list of counts: `2,8(x3)` is 2, 8, 8, 8.
int tasks_of_node(const std::string& list, int node) {
  int nodes = 0;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    const size_t paren = item.find("(x");
    const auto tasks = parse_number(item.substr(0, paren));
    const auto repeat = paren == std::string::npos ? 1 : parse_number(item.substr(paren + 2, item.size() - paren - 3));
    if (!tasks || !repeat || *tasks < 1 || *repeat < 1 || *tasks > INT32_MAX || *repeat > INT32_MAX) break;
    nodes += static_cast<int>(*repeat);
    if (node < nodes) return static_cast<int>(*tasks);
    begin = end + 1;
  }
  refuse("SLURM_STEP_TASKS_PER_NODE={} does not tell the tasks of node SLURM_NODEID={}.", list, node);
}

int slurm_world_size(const Reader& read) {
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    if (const auto size = read.count(name)) return *size;
  }
  refuse("SLURM_PROCID={} is set but SLURM_NTASKS is missing. Start with srun, which sets both.",
         *read.text("SLURM_PROCID"));
}

int slurm_local_world_size(const Reader& read, int world_size) {
  if (const auto list = read.text("SLURM_STEP_TASKS_PER_NODE")) {
    return tasks_of_node(*list, read.index("SLURM_NODEID").value_or(0));
  }
  if (const auto tasks = read.count("SLURM_NTASKS_PER_NODE")) return *tasks;
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) {
    const auto nodes = read.count(name);
    if (nodes && world_size % *nodes == 0) return world_size / *nodes;
  }
  if (world_size == 1) return 1;
  refuse(
      "SLURM_NTASKS={} tasks run but SLURM_STEP_TASKS_PER_NODE and SLURM_NTASKS_PER_NODE are missing: how many of them "
      "run "
      "on a node? Use srun --ntasks-per-node.",
      world_size);
}

// Within the range below the ports that systems hand out by themselves. Consecutive jobs are 8 apart, for their steps.
std::optional<int> slurm_port(const Reader& read) {
  const auto job = read.index("SLURM_JOB_ID");
  if (!job) return std::nullopt;
  const int64_t step = is_srun_task(read) ? parse_number(read.text("SLURM_STEP_ID").value_or("0")).value_or(0) : 0;
  return static_cast<int>(15000 + (static_cast<int64_t>(*job) * 8 + step % 8) % 16000);
}

bool agent_hosts_store(const Reader& read) {
  const auto value = read.text("TORCHELASTIC_USE_AGENT_STORE");
  if (!value || *value == "False" || *value == "false" || *value == "0") return false;
  if (*value == "True" || *value == "true" || *value == "1") return true;
  refuse("the environment variable TORCHELASTIC_USE_AGENT_STORE={} should be True or False.", *value);
}

// Where the ranks meet, and what restarts say about this attempt.
void read_meeting_point(const Reader& read, Environment& env) {
  const bool srun = is_srun_task(read);
  const bool alone = env.world_size == 1;
  if (const auto address = read.text("MASTER_ADDR")) {
    env.master_addr = *address;
  } else if (const auto nodes = read.text("SLURM_STEP_NODELIST"); srun && nodes) {
    env.master_addr = first_host(*nodes);
  } else if (!alone) {
    refuse("MASTER_ADDR is missing, and this is rank {} of {} ranks. Set it to the host of rank 0.", env.rank,
           env.world_size);
  }
  if (const auto port = read.number("MASTER_PORT", 1, 65535)) {
    env.master_port = *port;
  } else if (const auto derived = srun ? slurm_port(read) : std::nullopt) {
    env.master_port = *derived;
  } else if (!alone) {
    refuse("MASTER_PORT is missing, and this is rank {} of {} ranks. Set it to the same free port on all ranks.",
           env.rank, env.world_size);
  }
  env.restart_count = read.index("TORCHELASTIC_RESTART_COUNT").value_or(0);
  env.run_id = read.text("TORCHELASTIC_RUN_ID").value_or(srun ? read.text("SLURM_JOB_ID").value_or("none") : "none");
  env.agent_hosts_store = agent_hosts_store(read);
}

// RANK and WORLD_SIZE came without LOCAL_RANK: PyTorchJob counts pods, so a pod that was to run several processes needs
// a launcher.
void check_one_process_per_pod(const Reader& read) {
  const auto processes = parse_number(read.text("PET_NPROC_PER_NODE").value_or(""));
  if (!processes || *processes <= 1) return;
  refuse(
      "PET_NPROC_PER_NODE={} but LOCAL_RANK is missing: RANK={} is that of the pod. Start the processes of the pod "
      "with "
      "./run_train.sh or titanium launch.",
      *processes, *read.text("RANK"));
}

void read_local_rank(const Reader& read, Environment& env) {
  const bool srun = is_srun_task(read);
  const auto local_rank = read.index("LOCAL_RANK");
  const auto local_world_size = read.count("LOCAL_WORLD_SIZE");
  if (local_rank) {
    env.local_rank = *local_rank;
  } else if (local_world_size.value_or(1) > 1) {
    refuse("LOCAL_WORLD_SIZE={} is set but LOCAL_RANK is missing.", *local_world_size);
  } else if (srun) {
    env.local_rank = read.index("SLURM_LOCALID").value_or(0);
  } else {
    check_one_process_per_pod(read);
  }
  if (local_world_size) {
    env.local_world_size = *local_world_size;
  } else if (srun) {
    env.local_world_size = slurm_local_world_size(read, env.world_size);
  } else if (local_rank && env.world_size > 1) {
    refuse("LOCAL_RANK={} is set but LOCAL_WORLD_SIZE is missing. Set it to the number of processes on this node.",
           *local_rank);
  }
  check_index("LOCAL_RANK", env.local_rank, "LOCAL_WORLD_SIZE", env.local_world_size);
  if (env.local_world_size > env.world_size) {
    refuse("LOCAL_WORLD_SIZE={} contradicts WORLD_SIZE={}: a node cannot run more ranks than there are.",
           env.local_world_size, env.world_size);
  }
}

Environment torchrun_environment(const Reader& read) {
  Environment env;
  const auto rank = read.index("RANK");
  const auto world_size = read.count("WORLD_SIZE");
  if (!world_size) refuse("RANK={} is set but WORLD_SIZE is missing. Set both, or none for one process.", *rank);
  if (!rank) refuse("WORLD_SIZE={} is set but RANK is missing. Set both, or none for one process.", *world_size);
  check_index("RANK", *rank, "WORLD_SIZE", *world_size);
  env.rank = *rank;
  env.world_size = *world_size;
  read_local_rank(read, env);
  env.group_rank = read.index("GROUP_RANK").value_or(env.rank / env.local_world_size);
  read_meeting_point(read, env);
  return env;
}

Environment slurm_environment(const Reader& read) {
  Environment env;
  env.rank = *read.index("SLURM_PROCID");
  env.world_size = slurm_world_size(read);
  check_index("SLURM_PROCID", env.rank, "SLURM_NTASKS", env.world_size);
  const auto local_rank = read.index("SLURM_LOCALID");
  if (!local_rank && env.world_size > 1) {
    refuse("SLURM_PROCID={} of SLURM_NTASKS={} is set but SLURM_LOCALID is missing. Start with srun, which sets all.",
           env.rank, env.world_size);
  }
  env.local_rank = local_rank.value_or(0);
  env.local_world_size = slurm_local_world_size(read, env.world_size);
  check_index("SLURM_LOCALID", env.local_rank, "SLURM_STEP_TASKS_PER_NODE", env.local_world_size);
  env.group_rank = read.index("SLURM_NODEID").value_or(env.rank / env.local_world_size);
  read_meeting_point(read, env);
  return env;
}

// Nobody said which rank this is. That is one process, unless something says that there are more.
Environment lone_environment(const Reader& read) {
  const bool has_peers = read.index("LOCAL_RANK").value_or(0) > 0 || read.count("LOCAL_WORLD_SIZE").value_or(1) > 1;
  if (has_peers) {
    refuse("{}, but RANK and WORLD_SIZE are missing. Set all of them, or none for one process.",
           read.all_of({"LOCAL_RANK", "LOCAL_WORLD_SIZE"}));
  }
  const auto pods = parse_number(read.text("PET_NNODES").value_or(""));
  if (pods && *pods > 1) {
    refuse(
        "PET_NNODES={} pods work on this job, but RANK and WORLD_SIZE are missing: each would train alone. Start with "
        "./run_train.sh or titanium launch, or unset PET_NNODES for one process.",
        *pods);
  }
  Environment env;
  read_meeting_point(read, env);
  return env;
}

}  // namespace

Environment read_environment(const Variables& variables) {
  const Reader read(variables);
  if (read.has("RANK") || read.has("WORLD_SIZE")) return torchrun_environment(read);
  if (is_srun_task(read)) return slurm_environment(read);
  return lone_environment(read);
}

Environment read_environment() {
  return read_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

std::string first_host(std::string_view node_list) {
  std::string host;
  bool in_brackets = false;
  bool first_item_ended = false;  // inside brackets, at the first `-` or `,`
  for (const char c : node_list) {
    if (c == '[' || c == ']') {
      if (in_brackets == (c == '[')) refuse("the node list {} has unbalanced brackets.", node_list);
      in_brackets = c == '[';
      first_item_ended = false;
    } else if (in_brackets) {
      first_item_ended = first_item_ended || c == '-' || c == ',';
      if (!first_item_ended) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  if (in_brackets) refuse("the node list {} has unbalanced brackets.", node_list);
  if (host.empty()) refuse("the node list '{}' names no host.", node_list);
  return host;
}

}  // namespace titanium::comm
