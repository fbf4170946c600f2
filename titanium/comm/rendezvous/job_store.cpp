#include "titanium/comm/rendezvous/job_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "titanium/comm/error.h"
#include "titanium/comm/rendezvous/c10d_store.h"
#include "titanium/comm/rendezvous/store_search.h"

namespace titanium::comm {
namespace {

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

// PyTorch's Python layer reads this one, not its C++ classes.
bool use_libuv() {
  const char* value = std::getenv("USE_LIBUV");
  return value == nullptr || std::string_view(value) == "1";
}

bool hosts_store(const Environment& environment) { return environment.rank == 0 && !environment.agent_hosts_store; }

c10::intrusive_ptr<c10d::Store> connect_store(const Environment& environment, const Deadline& deadline) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(environment.master_port);
  options.waitWorkers = false;
  options.timeout = deadline.timeout;
  options.useLibUV = use_libuv();
  if (hosts_store(environment)) {
    options.isServer = true;
    options.masterListenFd =
        listen_at(environment.master_addr, environment.master_port, reach_of(environment)).socket.release();
  } else {
    wait_for_store(environment.master_addr, environment.master_port,
                   {deadline.timeout, std::min<std::chrono::milliseconds>(deadline.timeout, Patience::kUsualForHost)});
  }
  return c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
}

// "rank 3", "ranks 3 and 5", "ranks 3, 5 and 7", "ranks 1, 2, ... (900 in all)".
std::string list_ranks(const std::vector<int>& ranks) {
  constexpr size_t kMost = 16;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  const auto shown = static_cast<ptrdiff_t>(std::min(ranks.size() - 1, kMost));
  const std::string first = fmt::format("{}", fmt::join(ranks.begin(), ranks.begin() + shown, ", "));
  if (ranks.size() > kMost + 1) return fmt::format("ranks {}, ... ({} in all)", first, ranks.size());
  return fmt::format("ranks {} and {}", first, ranks.back());
}

// Appends to `found` which of keys[first, last) do not exist, in few questions when most do.
void find_missing(c10d::Store& store, const std::vector<std::string>& keys, size_t first, size_t last,
                  std::vector<size_t>& found) {
  if (first == last || store.check({keys.begin() + first, keys.begin() + last})) return;
  if (last - first == 1) {
    found.push_back(first);
    return;
  }
  const size_t middle = first + (last - first) / 2;
  find_missing(store, keys, first, middle, found);
  find_missing(store, keys, middle, last, found);
}

std::string arrival(const std::string& key, int rank) { return fmt::format("{}/{}", key, rank); }

}  // namespace

JobStore::JobStore(const Environment& environment, const Deadline& deadline)
    : environment_(environment), address_(fmt::format("{}:{}", environment.master_addr, environment.master_port)) {
  try {
    const std::string attempt = fmt::format("titanium/{}/{}", environment.run_id, environment.restart_count);
    store_ = std::make_shared<C10dStore>(
        C10dStore{c10::make_intrusive<c10d::PrefixStore>(attempt, connect_store(environment, deadline))});
  } catch (const CommError& error) {
    throw CommError(fmt::format(
        "rank {}: {} Check MASTER_ADDR and MASTER_PORT, the network and that rank 0 has started, or raise {}.",
        environment.rank, error.what(), deadline.option));
  } catch (const std::exception& error) {
    const std::string cause = message_of(error);
    throw CommError(fmt::format("rank {}: cannot {} the store at {}: {}. Check MASTER_ADDR and MASTER_PORT{}.",
                                environment.rank, hosts_store(environment) ? "open" : "reach", address_,
                                cause.substr(0, cause.find('\n')),
                                hosts_store(environment) ? ", and that nothing else uses the port" : ""));
  }
}

Reach reach_of(const Environment& environment) {
  return environment.local_world_size < environment.world_size ? Reach::kOtherMachines : Reach::kThisMachine;
}

void JobStore::set(const std::string& key, const std::string& value) { store_->store->set(key, bytes(value)); }

std::string JobStore::get(const std::string& key, const Deadline& deadline) {
  try {
    store_->store->wait({key}, deadline.timeout);
    const std::vector<uint8_t> value = store_->store->get(key);
    return {value.begin(), value.end()};
  } catch (const std::exception& error) {
    throw CommError(fmt::format("rank {}: no answer from the store at {} within {} s ({}): {}", environment_.rank,
                                address_, seconds_text(deadline.timeout), deadline.option, message_of(error)));
  }
}

void JobStore::meet(const std::string& key, const std::string& purpose, const std::vector<int>& members,
                    const Deadline& deadline, const std::string& note) {
  const std::string all = key + "/all";
  try {
    store_->store->set(arrival(key, environment_.rank), bytes(note));
    // One key for all to wait for: thousands of ranks that each wait for thousands of keys would drown the store.
    if (store_->store->add(key + "/count", 1) == static_cast<int64_t>(members.size()))
      store_->store->set(all, bytes("here"));
    store_->store->wait({all}, deadline.timeout);
  } catch (const std::exception& error) {
    std::string cause;
    try {
      cause = describe_missing(key, purpose, members, deadline);
    } catch (const std::exception&) {
      cause = fmt::format("the store at {} is gone, so rank 0 has ended: its log says why ({})", address_,
                          message_of(error));
    }
    throw CommError(fmt::format("rank {}: {}", environment_.rank, cause));
  }
}

std::vector<int> JobStore::missing(const std::string& key, const std::vector<int>& members) {
  std::vector<std::string> keys;
  for (const int member : members) keys.push_back(arrival(key, member));
  std::vector<size_t> places;
  find_missing(*store_->store, keys, 0, keys.size(), places);
  std::vector<int> ranks;
  for (const size_t place : places) ranks.push_back(members[place]);
  return ranks;
}

std::string JobStore::describe_missing(const std::string& key, const std::string& purpose,
                                       const std::vector<int>& members, const Deadline& deadline) {
  const std::vector<int> ranks = missing(key, members);
  if (ranks.empty()) return fmt::format("all ranks arrived at {}{}, but too late", address_, purpose);
  return fmt::format(
      "{} of {} did not arrive at {}{} within {} s ({}). Look at their output, check that as many processes run as "
      "WORLD_SIZE says, or allow more time",
      list_ranks(ranks), environment_.world_size, address_, purpose, seconds_text(deadline.timeout), deadline.option);
}

std::shared_ptr<const C10dStore> JobStore::part(const std::string& name, const Deadline& deadline) const {
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_->store);
  store->setTimeout(deadline.timeout);
  return std::make_shared<C10dStore>(C10dStore{store});
}

}  // namespace titanium::comm
