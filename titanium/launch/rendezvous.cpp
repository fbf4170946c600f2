#include "titanium/launch/rendezvous.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"
#include "titanium/comm/error.h"

namespace titanium::launch {
namespace {

constexpr const char* kStopped = "stopped";

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kAttemptKey = "launch/attempt";
constexpr size_t kLongestEntry = 4096;  // of what a launcher says about itself
constexpr milliseconds kPollInterval{100};
constexpr milliseconds kAnswerTime{30'000};
// A launcher that is silent for longer is gone: it beats twice a second.
constexpr milliseconds kLongestPause{3000};
// Others may still be ending their processes.
constexpr std::chrono::seconds kFarewell{30};

comm::Store meet(const LaunchOptions& options) {
  if (options.address.empty()) return comm::Store::host_locally();
  const auto reach = options.nodes > 1 ? comm::Reach::kOtherMachines : comm::Reach::kThisMachine;
  if (options.node_rank == 0) return comm::Store::host(options.address, options.port, reach);
  try {
    return comm::Store::connect(options.address, options.port, {options.rendezvous_timeout, options.host_timeout});
  } catch (const comm::CommError& error) {
    throw Error(
        fmt::format("node 0 is missing: {} Start titanium launch with --node-rank 0 there, or check --rdzv-endpoint "
                    "and the network.",
                    error.what()));
  }
}

std::string made_up_run_id() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", std::localtime(&now));
  return fmt::format("{}-{}", text, ::getpid());
}

}  // namespace

Rendezvous::Rendezvous(const LaunchOptions& options)
    : options_(options), store_(meet(options)), run_id_(options.run_id), max_restarts_(options.max_restarts) {
  if (options_.node_rank == 0 && run_id_.empty()) run_id_ = made_up_run_id();
}

std::string Rendezvous::key(const std::string& name) const { return fmt::format("launch/{}/{}", attempt_, name); }
std::string Rendezvous::key(const std::string& name, int node) const {
  return fmt::format("launch/{}/{}/{}", attempt_, name, node);
}

int Rendezvous::join() {
  if (options_.nodes == 1) return ++attempt_;
  if (options_.node_rank == 0) {
    store_.set(kAttemptKey, std::to_string(++attempt_));
  } else {
    attempt_ = attempt_ >= 0 ? attempt_ + 1 : present_attempt();
  }
  const auto deadline = Clock::now() + options_.rendezvous_timeout;
  while (!announce()) wait_for_next_attempt(deadline);
  if (!wait_for_all("node", deadline)) {
    throw Error(
        fmt::format("of {} nodes, these did not arrive at {}:{} within {} s: {}. Start titanium launch on each "
                    "with its own --node-rank, or raise --rdzv-timeout.",
                    options_.nodes, options_.address, options_.port, options_.rendezvous_timeout.count(),
                    fmt::join(missing("node"), ", ")));
  }
  adopt_and_check();
  store_.set(key("begun", options_.node_rank), "");
  return attempt_;
}

int Rendezvous::present_attempt() const {
  const std::string text = store_.get(kAttemptKey, options_.rendezvous_timeout);
  int attempt = -1;
  std::from_chars(text.data(), text.data() + text.size(), attempt);
  if (attempt < 0) refuse_entry(kAttemptKey);
  return attempt;
}

void Rendezvous::refuse_entry(const std::string& key) const {
  throw Error(
      fmt::format("what the store at {}:{} holds under {} was not written by a launcher. Something else writes to "
                  "it: let only the job's machines reach its port, and start again.",
                  address(), port(), key));
}

Failure Rendezvous::read_failure(const std::string& text) const {
  auto failure = Failure::from_json(text);
  if (!failure) refuse_entry(key("failure"));
  return *std::move(failure);
}

Rendezvous::Node Rendezvous::read_node(int node) const {
  const std::string text = store_.get(key("node", node), kAnswerTime);
  if (text.size() > kLongestEntry) refuse_entry(key("node", node));
  try {
    const nlohmann::json json = parse_json(text);
    const auto count = [&](const char* name) {
      const int64_t value = integer_of(json.at(name));
      if (!std::in_range<int>(value)) refuse_entry(key("node", node));
      return static_cast<int>(value);
    };
    return {count("nodes"), count("processes"), count("max_restarts"), json.at("run_id").get<std::string>()};
  } catch (const JsonError&) {
    refuse_entry(key("node", node));
  } catch (const nlohmann::json::exception&) {
    refuse_entry(key("node", node));
  }
}

bool Rendezvous::announce() {
  if (store_.add(key("joined", options_.node_rank), 1) > 1 && !takes_over()) return false;
  const nlohmann::json self = {{"nodes", options_.nodes},
                               {"processes", options_.processes},
                               {"max_restarts", options_.max_restarts},
                               {"run_id", run_id_}};
  store_.set(key("node", options_.node_rank), self.dump());
  return true;
}

// Note [Successors]
// A cluster manager may start a launcher anew before node 0 has noticed that its predecessor is gone. The predecessor
// has joined the attempt; if it lives, it beats, or has stopped beating because the attempt has a failure, and then
// this one waits for the next attempt. If it is silent and had not begun, nobody has missed it, and this launcher takes
// its place. If it had begun, its ranks are gone, which this launcher says in its place.
bool Rendezvous::takes_over() {
  const std::string beats = key("beat", options_.node_rank);
  const int64_t before = store_.add(beats, 0);
  for (const auto deadline = Clock::now() + kLongestPause; Clock::now() < deadline;) {
    if (store_.has(key("failure")) || store_.has(key("done", options_.node_rank))) return false;
    if (store_.add(beats, 0) != before) {
      throw UsageError(
          fmt::format("another launcher at {}:{} has --node-rank {}. Give every node its own, from 0 to {}.",
                      options_.address, options_.port, options_.node_rank, options_.nodes - 1));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  if (!store_.has(key("begun", options_.node_rank))) return true;
  publish(Failure::lost_node(options_.node_rank));
  return false;
}

void Rendezvous::wait_for_next_attempt(Time deadline) {
  const int over = attempt_;
  while ((attempt_ = present_attempt()) == over) {
    if (store_.has(key("left", 0))) throw comm::CommError("the job has ended before this launcher could join it.");
    TI_CHECK(Clock::now() < deadline,
             "the launchers at {}:{} have begun no attempt within {} s that this one could join, after a launcher with "
             "--node-rank {} was lost. Look at the output of node 0, or raise --rdzv-timeout.",
             options_.address, options_.port, options_.rendezvous_timeout.count(), options_.node_rank);
    std::this_thread::sleep_for(kPollInterval);
  }
}

void Rendezvous::adopt_and_check() {
  const Node first = read_node(0);
  for (int node = 1; node < options_.nodes; ++node) {
    const Node other = read_node(node);
    const auto compare = [&](const char* option, int here, int there) {
      if (here == there) return;
      throw UsageError(fmt::format("node {} was started with {} {}, node 0 with {}. Use the same on all nodes.", node,
                                   option, there, here));
    };
    compare("--nnodes", first.nodes, other.nodes);
    compare("--nproc-per-node", first.processes, other.processes);
  }
  if (!run_id_.empty() && run_id_ != first.run_id) {
    throw UsageError(
        fmt::format("the launcher at {}:{} works on --run-id {}, this one on {}. Give every job an endpoint "
                    "of its own.",
                    options_.address, options_.port, printable(first.run_id), run_id_));
  }
  run_id_ = first.run_id;
  max_restarts_ = first.max_restarts;
}

std::vector<int> Rendezvous::missing(const std::string& name) const {
  std::vector<int> nodes;
  for (int node = 0; node < options_.nodes; ++node) {
    if (!store_.has(key(name, node))) nodes.push_back(node);
  }
  return nodes;
}

bool Rendezvous::wait_for_all(const std::string& name, Time deadline) {
  while (!missing(name).empty()) {
    if (Clock::now() >= deadline) return false;
    beat();
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

Failure Rendezvous::publish(const Failure& failure) {
  if (options_.nodes == 1) return failure;
  return read_failure(store_.set_once(key("failure"), failure.to_json()));
}

std::optional<Failure> Rendezvous::failure() const {
  if (options_.nodes == 1 || !store_.has(key("failure"))) return std::nullopt;
  return read_failure(store_.get(key("failure"), kAnswerTime));
}

void Rendezvous::beat() { store_.add(key("beat", options_.node_rank), 1); }

void Rendezvous::report_silence(Heartbeats& heartbeats) {
  if (options_.node_rank != 0) return;
  for (int node = 0; node < options_.nodes; ++node) {
    heartbeats.count(node, store_.add(key("beat", node), 0), Clock::now());
  }
  if (const auto silent = heartbeats.silent_node(Clock::now())) publish(Failure::lost_node(*silent));
}

std::optional<Failure> Rendezvous::wait_for_others(bool stopped) {
  stopped_ = stopped;
  if (options_.nodes == 1) return std::nullopt;
  store_.set(key("done", options_.node_rank), stopped ? kStopped : "");
  while (!missing("done").empty()) {
    if (auto failed = failure()) return failed;
    std::this_thread::sleep_for(kPollInterval);
  }
  return std::nullopt;
}

bool Rendezvous::stopped_anywhere() const {
  for (int node = 0; !stopped_ && options_.nodes > 1 && node < options_.nodes; ++node) {
    if (store_.get(key("done", node), kAnswerTime) == kStopped) return true;
  }
  return stopped_;
}

void Rendezvous::leave() {
  if (options_.nodes == 1) return;
  try {
    store_.add(key("left", options_.node_rank), 1);
    if (options_.node_rank == 0) wait_for_all("left", Clock::now() + kFarewell);
  } catch (const comm::CommError&) {
    // Node 0 has gone before: there is nobody to tell.
  }
}

}  // namespace titanium::launch
