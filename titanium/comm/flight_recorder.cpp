#include "titanium/comm/flight_recorder.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "titanium/base/error.h"

namespace titanium::comm {
namespace {

using State = CollectiveRecord::State;

std::string place(const CollectiveRecord& record) {
  return fmt::format("{} on axis {}", record.name, record.group->axis);
}

}  // namespace

FlightRecorder::FlightRecorder(size_t capacity) : ring_(capacity) { TI_ASSERT(capacity > 0); }

void FlightRecorder::set_capacity(size_t capacity) {
  TI_ASSERT(capacity > 0);
  const std::lock_guard lock(mutex_);
  ring_.assign(capacity, {});
}

void FlightRecorder::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

int64_t FlightRecorder::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

std::shared_ptr<FlightGroup> FlightRecorder::add_group(const std::string& axis, int rank,
                                                       const std::vector<int>& members) {
  const auto group = std::make_shared<FlightGroup>();
  group->axis = group->name = axis;
  group->rank = rank;
  group->members = members;
  const std::lock_guard lock(mutex_);
  const int made = ++groups_made_[fmt::format("{} {} {}", axis, fmt::join(members, ","), rank)];
  if (made > 1) group->name = fmt::format("{} ({})", axis, made);
  std::erase_if(groups_, [](const auto& old) { return old.expired(); });
  groups_.push_back(group);
  return group;
}

uint64_t FlightRecorder::issue(CollectiveRecord record) {
  FlightGroup& group = *record.group;
  const std::lock_guard lock(mutex_);
  record.sequence = ++last_sequence_;
  record.record_id = next_record_ids_[group.world_rank()]++;
  if (record.peer < 0) {
    record.number = ++group.collectives_;
  } else {
    const bool sends = std::string_view(record.name) == "send";
    record.number = ++group.transfers_[sends ? std::pair(group.rank, record.peer) : std::pair(record.peer, group.rank)];
  }
  record.step = step_;
  record.state = State::kIssued;
  record.issued = std::chrono::system_clock::now();
  ring_[record.sequence % ring_.size()] = std::move(record);
  return last_sequence_;
}

CollectiveRecord* FlightRecorder::find(uint64_t sequence) {
  CollectiveRecord& record = ring_[sequence % ring_.size()];
  return record.sequence == sequence ? &record : nullptr;
}

void FlightRecorder::waiting(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (CollectiveRecord* record = find(sequence)) {
    record->state = State::kWaiting;
    record->waited = std::chrono::system_clock::now();
  }
}

void FlightRecorder::finished(uint64_t sequence, bool failed) {
  const std::lock_guard lock(mutex_);
  if (CollectiveRecord* record = find(sequence)) {
    record->state = failed ? State::kFailed : State::kFinished;
    record->finished = std::chrono::system_clock::now();
  }
}

std::string FlightRecorder::describe_current() const {
  const std::vector<CollectiveRecord> all = records();
  const auto in_state = [](State state) { return [state](const CollectiveRecord& r) { return r.state == state; }; };
  const auto waiting = std::find_if(all.rbegin(), all.rend(), in_state(State::kWaiting));
  const auto issued = std::find_if(all.begin(), all.end(), in_state(State::kIssued));
  const CollectiveRecord* current = waiting != all.rend() ? &*waiting : issued != all.end() ? &*issued : nullptr;
  if (current) return fmt::format("{} in step {}", place(*current), current->step);
  if (all.empty()) return fmt::format("no collective, in step {}", step());
  return fmt::format("no collective (the last was {}) in step {}", place(all.back()), step());
}

std::vector<CollectiveRecord> FlightRecorder::records() const {
  std::vector<CollectiveRecord> all;
  const std::lock_guard lock(mutex_);
  all.reserve(ring_.size());
  for (const CollectiveRecord& record : ring_)
    if (record.sequence > 0) all.push_back(record);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  return all;
}

std::vector<std::shared_ptr<const FlightGroup>> FlightRecorder::groups() const {
  std::vector<std::shared_ptr<const FlightGroup>> all;
  const std::lock_guard lock(mutex_);
  for (const auto& weak : groups_) {
    if (auto group = weak.lock()) all.push_back(std::move(group));
  }
  return all;
}

FlightRecorder& flight_recorder() {
  // Never destroyed: threads of back ends may still record while the process ends.
  static auto* const recorder = new FlightRecorder;
  return *recorder;
}

std::string stop_line(int rank, const std::string& cause) {
  return fmt::format("rank {}: stopped in {}, because {}", rank, flight_recorder().describe_current(), cause);
}

}  // namespace titanium::comm
