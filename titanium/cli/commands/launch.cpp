// titanium launch: starts the processes of a job on this node.
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/base/machine/usable_cores.h"
#include "titanium/cli/command_line.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/launch/launcher.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::cli {
namespace {

constexpr int kDefaultPort = 29500;

// The command line as it was written.
struct Request {
  std::string processes = "1";
  int nodes = 1;
  int node_rank = 0;
  std::string endpoint;
  bool standalone = false;
  int max_restarts = 0;
  int stop_code = 0;
  std::string log_dir;
  std::string log_ranks;
  std::optional<int> rendezvous_timeout;
  std::string run_id;
  std::string program;
  bool doctor = false;
};

template <typename... Parts>
[[noreturn]] void refuse(fmt::format_string<Parts...> format, Parts&&... parts) {
  throw UsageError("launch: " + fmt::format(format, std::forward<Parts>(parts)...));
}

std::optional<int> to_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int process_count(const std::string& text) {
  if (text == "cpu") return usable_cores();
  if (text == "gpu") {
    const int gpus = gpu_device_count();
    if (gpus == 0) refuse("--nproc-per-node gpu: this program finds no GPU. Use cpu or a number.");
    return gpus;
  }
  const auto count = to_number(text);
  if (!count || *count < 1) refuse("--nproc-per-node {} should be a number from 1, gpu or cpu.", text);
  return *count;
}

std::set<int> rank_list(const std::string& text, const char* source) {
  std::set<int> list;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const auto rank = to_number(item);
    if (!rank || *rank < 0) refuse("{} {} should be ranks, comma separated, such as 0,3.", source, text);
    list.insert(*rank);
  }
  return list;
}

// The variable may be meant for a larger job; the option is for this one.
std::set<int> shown_ranks(const Request& request, int ranks) {
  const char* variable = std::getenv("LOG_RANK");
  if (request.log_ranks.empty()) return rank_list(variable == nullptr ? "0" : variable, "LOG_RANK");
  const std::set<int> list = rank_list(request.log_ranks, "--log-rank");
  if (!list.empty() && *list.rbegin() >= ranks) {
    refuse("--log-rank {}: the last rank is {}.", request.log_ranks, ranks - 1);
  }
  return list;
}

// HOST, HOST:PORT, [IPV6]:PORT or IPV6.
void split_endpoint(const std::string& endpoint, launch::LaunchOptions& options) {
  const size_t colon = endpoint.rfind(':');
  const bool bracketed = endpoint.starts_with('[');
  const bool has_port =
      colon != std::string::npos && (bracketed ? endpoint[colon - 1] == ']' : endpoint.find(':') == colon);
  options.address = has_port ? endpoint.substr(0, colon) : endpoint;
  if (bracketed) options.address = options.address.substr(1, options.address.size() - 2);
  const auto port = has_port ? to_number(endpoint.substr(colon + 1)) : kDefaultPort;
  if (!port || *port < 0 || *port > 65535 || options.address.empty()) {
    refuse("--rdzv-endpoint {} should be HOST:PORT, the host of node 0 and a free port there.", endpoint);
  }
  options.port = *port;
}

void place_nodes(const Request& request, launch::LaunchOptions& options) {
  const auto [nodes, node_rank] = std::pair(request.nodes, request.node_rank);
  if (nodes < 1) refuse("--nnodes {} should be at least 1.", nodes);
  if (node_rank < 0 || node_rank >= nodes) {
    refuse("--node-rank {} should be from 0 to {}, for --nnodes {}.", node_rank, nodes - 1, nodes);
  }
  if (nodes > 1 && request.standalone) refuse("--standalone is for one node, but --nnodes is {}.", nodes);
  options.nodes = nodes;
  options.node_rank = node_rank;
  if (request.standalone) return;
  if (!request.endpoint.empty()) split_endpoint(request.endpoint, options);
  const bool free_port = options.port == 0;
  if (nodes > 1 && free_port) {
    refuse("--nnodes {} needs --rdzv-endpoint HOST:PORT, the host of node 0 and a free port there.", nodes);
  }
}

// The path that a shell would start.
std::string find_program(const std::string& name) {
  const auto usable = [](const std::filesystem::path& path) {
    return ::access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path);
  };
  if (name.find('/') != std::string::npos) {
    if (usable(name)) return name;
  } else {
    const char* variable = std::getenv("PATH");
    std::istringstream folders(variable == nullptr ? "" : variable);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::filesystem::path path = std::filesystem::path(folder.empty() ? "." : folder) / name;
      if (usable(path)) return path.string();
    }
  }
  refuse("--program {} is not a program that can be started. Check the path.", name);
}

std::vector<std::string> worker_command(const Request& request, Arguments command) {
  std::vector<std::string> words;
  if (request.program.empty()) {
    if (command.empty()) refuse("nothing to start. Put the command of titanium after --, such as -- train.");
    words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  } else {
    words.push_back(find_program(request.program));
  }
  if (request.doctor) {
    if (!request.program.empty() || command[0] != "train")
      refuse("--doctor is for titanium train: put -- train after it.");
    words.insert(words.end(), {"doctor", "--then"});
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

launch::LaunchOptions to_options(const Request& request, Arguments command) {
  launch::LaunchOptions options;
  options.command = worker_command(request, command);
  options.processes = process_count(request.processes);
  place_nodes(request, options);
  if (request.max_restarts < 0) refuse("--max-restarts {} should be at least 0.", request.max_restarts);
  if (request.rendezvous_timeout) {
    if (*request.rendezvous_timeout < 1)
      refuse("--rdzv-timeout {} should be at least 1 second.", *request.rendezvous_timeout);
    options.rendezvous_timeout = options.host_timeout = std::chrono::seconds(*request.rendezvous_timeout);
  }
  if (request.run_id.find('/') != std::string::npos || request.run_id == "." || request.run_id == "..") {
    refuse("--run-id {} should be a name that can be a folder's.", request.run_id);
  }
  if (request.stop_code < 0 || request.stop_code > 255)
    refuse("--stop-code {} should be from 0 to 255.", request.stop_code);
  options.max_restarts = request.max_restarts;
  options.stop_code = request.stop_code;
  options.run_id = request.run_id;
  options.log_dir = request.log_dir;
  options.shown_ranks = shown_ranks(request, options.nodes * options.processes);
  return options;
}

// That of the trainer, so that all lines of a job are alike. What is wrong with its options the ranks say themselves.
LogFormat log_format_of(const Request& request, Arguments command) {
  if (!request.program.empty() || command.empty() || command[0] != "train") return LogFormat::kText;
  try {
    const config::LoadedConfig loaded = config::load_config(command.subspan(1));
    return loaded.config.log.format == "json" ? LogFormat::kJson : LogFormat::kText;
  } catch (const Error&) {
    return LogFormat::kText;
  }
}

// torchrun knows its options with dashes and with underscores.
std::vector<std::string> with_dashes(Arguments args) {
  std::vector<std::string> list(args.begin(), args.end());
  for (std::string& arg : list) {
    if (arg.starts_with("--"))
      std::replace(arg.begin(), arg.begin() + static_cast<long>(std::min(arg.find('='), arg.size())), '_', '-');
  }
  return list;
}

void declare_options(CommandLine& app, Request& request) {
  app.option("--nproc-per-node", request.processes,
             "Processes on this node: a number, gpu (one for each) or cpu (one for each core)")
      .shows_default();
  app.option("--nnodes", request.nodes, "Nodes, each with a launcher of its own").shows_default();
  app.option("--node-rank", request.node_rank, "Number of this node, from 0").shows_default();
  app.option("--rdzv-endpoint", request.endpoint,
             "HOST:PORT where node 0 keeps the store (default port: 29500); not needed for one node");
  app.flag("--standalone", request.standalone, "One node and a free port, as without --rdzv-endpoint");
  app.option("--max-restarts", request.max_restarts,
             "How often all ranks are started again after a failure; node 0's counts")
      .shows_default();
  app.option("--stop-code", request.stop_code,
             "Exit code when the job was asked to stop before its end, and, if it is not 0, when node 0's launcher is "
             "gone, so that a cluster manager starts it again")
      .shows_default();
  app.option("--rdzv-timeout", request.rendezvous_timeout,
             "Seconds to wait for the other nodes (default: 600, but 30 while the host of node 0 cannot be reached)");
  app.option("--log-dir", request.log_dir,
             "Keep the output of every rank in DIR/<run id>/attempt_<k>/<rank>/{stdout,stderr}.log");
  app.option("--log-rank", request.log_ranks,
             "Ranks whose output is shown, comma separated (default: $LOG_RANK, else 0)");
  app.option("--run-id,--rdzv-id", request.run_id, "Name of the run (default: made from the time)");
  app.option("--program", request.program, "Start this program instead of titanium");
  app.flag("--doctor", request.doctor,
           "Every rank runs titanium doctor first, and trains only if it finds no error; its page is rank 0's output");
}

void write_line(launch::Stream stream, std::string_view line) {
  std::FILE* file = stream == launch::Stream::kOut ? stdout : stderr;
  std::fwrite(line.data(), 1, line.size(), file);
  std::fflush(file);
}

}  // namespace

int run_launch(Arguments args) {
  const auto separator = std::ranges::find(args, "--");
  const auto own = with_dashes(args.first(static_cast<size_t>(separator - args.begin())));
  const Arguments command = separator == args.end() ? Arguments() : Arguments(separator + 1, args.end());
  Request request;
  CommandLine app(
      "Starts titanium several times, as the ranks of one job: titanium launch --nproc-per-node 8 -- train ...",
      "launch");
  declare_options(app, request);
  if (!app.parse(own)) return 0;
  launch::LaunchOptions options = to_options(request, command);
  options.log_format = log_format_of(request, command);
  log_to_stdout(LogLevel::kInfo, options.log_format);
  return launch::launch(options, write_line);
}

}  // namespace titanium::cli
