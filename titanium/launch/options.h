// What `titanium launch` was asked to do.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/base/log.h"

namespace titanium::launch {

struct LaunchOptions {
  std::vector<std::string> command;  // the program's path first
  int processes = 1;                 // on this node, the same on all nodes
  int nodes = 1;
  int node_rank = 0;
  std::string address;  // of node 0's store; empty: a store that only this machine reaches
  int port = 0;
  int max_restarts = 0;  // that of node 0 counts
  // Exit code when a launcher of the job was asked to stop and all ranks ended well, and, unless it is 0, when node 0's
  // launcher is gone: the job is to be started again.
  int stop_code = 0;
  std::string run_id;             // empty: node 0 makes one up
  std::filesystem::path log_dir;  // empty: no log files
  std::set<int> shown_ranks = {0};
  LogFormat log_format = LogFormat::kText;       // of what is shown
  std::chrono::seconds rendezvous_timeout{600};  // for all nodes to come
  std::chrono::seconds host_timeout{30};         // for node 0's host to be found and to answer as a launcher
};

enum class Stream { kOut, kErr };

// Gets whole lines, newline included, for the launcher's own stdout or stderr.
using Writer = std::function<void(Stream stream, std::string_view line)>;

}  // namespace titanium::launch
