#include "titanium/train/flight/dump.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <set>
#include <thread>

#include "titanium/base/files/file.h"
#include "titanium/base/log.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"
#include "titanium/comm/nccl.h"

namespace titanium::train {
namespace {

using checkpoint::PickleValue;
using comm::CollectiveRecord;
using comm::FlightGroup;
using Entries = std::vector<std::pair<PickleValue, PickleValue>>;
using State = CollectiveRecord::State;

// What is told of a process group.
struct ProcessGroup {
  std::string name;
  std::string axis;
  std::vector<int> members;
  int64_t issued = 0, started = 0, completed = 0;  // the last of each
};

std::string torch_name(const CollectiveRecord& record) {
  const std::string_view name = record.name;
  if (name == "all_gather") return "nccl:_all_gather_base";
  if (name == "reduce_scatter") return "nccl:_reduce_scatter_base";
  if (name == "barrier") return "nccl:all_reduce_barrier";
  // A message travels in a group of two, in which the lower rank is 0.
  const int rank = record.group->rank < record.peer ? 0 : 1;
  if (name == "send") return fmt::format("nccl:send {}->{}", rank, 1 - rank);
  if (name == "receive") return fmt::format("nccl:recv {}<-{}", rank, 1 - rank);
  return fmt::format("nccl:{}", name);
}

ProcessGroup process_group(const CollectiveRecord& record) {
  const FlightGroup& group = *record.group;
  if (record.peer < 0) return {group.name, group.axis, group.members};
  const bool sends = std::string_view(record.name) == "send";
  const int own = group.world_rank(), peer = group.members[static_cast<size_t>(record.peer)];
  const int from = sends ? own : peer, to = sends ? peer : own;
  return {fmt::format("{} {}->{}", group.name, from, to), group.axis, {std::min(own, peer), std::max(own, peer)}};
}

const char* torch_state(const CollectiveRecord& record) {
  if (record.state == State::kIssued) return "scheduled";
  // The host's wait for NCCL only says that the stream will wait.
  return record.state == State::kFinished && !record.group->nccl_records ? "completed" : "started";
}

PickleValue time_value(std::chrono::system_clock::time_point time) {
  if (time.time_since_epoch().count() == 0) return {};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

PickleValue sizes_of(const c10::SmallVector<int64_t, 4>& shape) {
  return PickleValue::list({PickleValue::list({shape.begin(), shape.end()})});
}

PickleValue frames_of(int64_t step) {
  return PickleValue::list(
      {PickleValue::dict({{"name", fmt::format("training step {}", step)}, {"filename", "titanium"}, {"line", 0}})});
}

PickleValue entry_of(const CollectiveRecord& record, int64_t group_id) {
  const bool transfer = record.peer >= 0;
  const ProcessGroup group = process_group(record);
  const std::string_view state = torch_state(record);
  const PickleValue dtypes = record.dtype == Dtype::Undefined
                                 ? PickleValue::list({})
                                 : PickleValue::list({PickleValue(c10::toString(record.dtype))});
  return PickleValue::dict(
      {{"frames", frames_of(record.step)},
       {"record_id", record.record_id},
       {"pg_id", group_id},
       {"process_group", PickleValue::tuple({group.name, group.axis})},
       {"collective_seq_id", record.number},
       {"p2p_seq_id", transfer ? record.number : 0},
       {"op_id", record.number},
       {"profiling_name", torch_name(record)},
       {"time_created_ns", time_value(record.issued)},
       {"input_sizes", sizes_of(record.input)},
       {"input_dtypes", dtypes},
       {"output_sizes", sizes_of(record.output)},
       {"output_dtypes", dtypes},
       {"state", state},
       {"time_discovered_started_ns", time_value(record.waited)},
       {"time_discovered_completed_ns", state == "completed" ? time_value(record.finished) : PickleValue()},
       {"retired", record.state == State::kFinished || record.state == State::kFailed},
       {"timeout_ms", record.timeout.count()},
       {"is_p2p", transfer},
       {"step", record.step}});
}

// NCCL has groups of one for tests on one GPU.
bool exchanges_nothing(const FlightGroup& group) { return group.members.size() == 1 && !group.nccl_records; }

// c10d's dump of NCCL's groups, or nothing.
PickleValue nccl_dump(const std::vector<std::shared_ptr<const FlightGroup>>& groups) {
  if (std::ranges::none_of(groups, &FlightGroup::nccl_records)) return {};
  auto result = std::make_shared<std::promise<std::string>>();
  std::future<std::string> dump = result->get_future();
  std::thread([result] {
    try {
      result->set_value(comm::nccl_flight_dump());
    } catch (...) {
      result->set_exception(std::current_exception());
    }
  }).detach();  // whoever hangs with the device is not waited for
  try {
    if (dump.wait_for(std::chrono::seconds(2)) != std::future_status::ready) {
      log_warning("NCCL does not say within 2 s what it has completed; the dump has what the host knows.");
      return {};
    }
    const std::string bytes = dump.get();
    return checkpoint::read_pickle(std::as_bytes(std::span(bytes)), "NCCL's flight recorder");
  } catch (const std::exception& error) {
    log_warning("NCCL's flight recorder cannot be read ({}); the dump has what the host knows.", error.what());
    return {};
  }
}

int64_t first_id(std::span<const PickleValue> entries) {
  return entries.empty() ? 0 : entries.front().at("record_id").as_int();
}

// The entries of two recorders as those of one, which has overwritten `lost` entries.
std::vector<PickleValue> renumbered(const std::vector<PickleValue>& entries, int64_t lost) {
  std::vector<PickleValue> result;
  for (const PickleValue& entry : entries) {
    const auto items = entry.items();
    Entries changed;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const bool id = items[i] == PickleValue("record_id");
      changed.emplace_back(items[i], id ? PickleValue(lost + static_cast<int64_t>(result.size())) : items[i + 1]);
    }
    result.push_back(PickleValue::dict(changed));
  }
  return result;
}

// What is written for one rank.
class Dump {
 public:
  explicit Dump(PickleValue nccl) : nccl_(std::move(nccl)) {}

  void add_group(const FlightGroup& group) { id_of({group.name, group.axis, group.members}); }

  void add(const CollectiveRecord& record) {
    if (record.group->nccl_records && !nccl_.is_none()) return;
    ProcessGroup& group = groups_[static_cast<size_t>(id_of(process_group(record)))];
    const auto number = static_cast<int64_t>(record.number);
    const std::string_view state = torch_state(record);
    group.issued = std::max(group.issued, number);
    if (state != "scheduled") group.started = std::max(group.started, number);
    if (state == "completed") group.completed = std::max(group.completed, number);
    entries_.push_back(entry_of(record, id_of(process_group(record))));
  }

  std::string pickled() const {
    std::vector<PickleValue> entries = entries_;
    Entries config, status;
    if (!nccl_.is_none()) {
      const auto theirs = nccl_.at("entries").items();
      entries.insert(entries.end(), theirs.begin(), theirs.end());
      const auto created = [](const PickleValue& entry) { return entry.at("time_created_ns").as_int(); };
      std::ranges::stable_sort(entries, {}, created);
      entries = renumbered(entries, first_id(entries_) + first_id(theirs));
      const auto items = nccl_.at("pg_config").items();
      for (size_t i = 0; i + 1 < items.size(); i += 2) config.emplace_back(items[i], items[i + 1]);
    }
    for (size_t id = 0; id < groups_.size(); ++id) {
      const ProcessGroup& group = groups_[id];
      config.emplace_back(group.name,
                          PickleValue::dict({{"name", group.name},
                                             {"desc", group.axis},
                                             {"ranks", fmt::format("[{}]", fmt::join(group.members, ", "))}}));
      status.emplace_back(std::to_string(id), PickleValue::dict({{"last_enqueued_collective", group.issued},
                                                                 {"last_started_collective", group.started},
                                                                 {"last_completed_collective", group.completed}}));
    }
    return checkpoint::write_pickle(PickleValue::dict({{"version", "2.10"},
                                                       {"comm_lib_version", "titanium"},
                                                       {"pg_config", PickleValue::dict(config)},
                                                       {"pg_status", PickleValue::dict(status)},
                                                       {"entries", PickleValue::list(std::move(entries))}}));
  }

 private:
  int64_t id_of(const ProcessGroup& group) {
    auto found = std::ranges::find(groups_, group.name, &ProcessGroup::name);
    if (found == groups_.end()) found = groups_.insert(groups_.end(), group);
    return found - groups_.begin();
  }

  PickleValue nccl_;
  std::vector<ProcessGroup> groups_;
  std::vector<PickleValue> entries_;
};

}  // namespace

std::vector<std::filesystem::path> write_flight_dumps(const comm::FlightRecorder& recorder,
                                                      const std::filesystem::path& prefix) {
  const auto groups = recorder.groups();
  const PickleValue nccl = nccl_dump(groups);
  std::map<int, Dump> dumps;
  for (const auto& group : groups) {
    if (exchanges_nothing(*group)) continue;
    Dump& dump = dumps.try_emplace(group->world_rank(), nccl).first->second;
    if (nccl.is_none() || !group->nccl_records) dump.add_group(*group);
  }
  for (const CollectiveRecord& record : recorder.records()) {
    if (exchanges_nothing(*record.group)) continue;
    dumps.try_emplace(record.group->world_rank(), nccl).first->second.add(record);
  }
  std::vector<std::filesystem::path> files;
  for (const auto& [rank, dump] : dumps) {
    files.emplace_back(prefix.string() + std::to_string(rank));
    write_file_atomically(files.back(), dump.pickled());
  }
  return files;
}

}  // namespace titanium::train
