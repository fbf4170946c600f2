#include "titanium/comm/flight_recorder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/file.h"

namespace titanium::comm {
namespace {

using State = CollectiveRecord::State;

const char* state_name(State state) {
  switch (state) {
    case State::kIssued:
      return "issued";
    case State::kWaiting:
      return "waiting";
    case State::kFinished:
      return "finished";
    case State::kFailed:
      return "failed";
  }
  return "";
}

double seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

nlohmann::ordered_json to_json(const CollectiveRecord& record) {
  const bool ended = record.finished >= record.issued;
  return {{"sequence", record.sequence},
          {"name", record.name},
          {"axis", record.axis},
          {"group_rank", record.group_rank},
          {"group_size", record.group_size},
          {"bytes", record.bytes},
          {"dtype", record.dtype == Dtype::Undefined ? "" : std::string(dtype_name(record.dtype))},
          {"step", record.step},
          {"state", state_name(record.state)},
          {"issued", seconds(record.issued)},
          {"finished", ended ? nlohmann::ordered_json(seconds(record.finished)) : nlohmann::ordered_json()}};
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

uint64_t FlightRecorder::issue(CollectiveRecord record) {
  const std::lock_guard lock(mutex_);
  record.sequence = ++last_sequence_;
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
  if (CollectiveRecord* record = find(sequence)) record->state = State::kWaiting;
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
  if (current) return fmt::format("{} on axis {} in step {}", current->name, current->axis, current->step);
  if (all.empty()) return fmt::format("no collective, in step {}", step());
  return fmt::format("no collective (the last was {} on axis {}) in step {}", all.back().name, all.back().axis, step());
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

void FlightRecorder::dump(const std::filesystem::path& path) const {
  nlohmann::ordered_json document = {{"step", step()}, {"collectives", nlohmann::ordered_json::array()}};
  for (const CollectiveRecord& record : records()) document["collectives"].push_back(to_json(record));
  write_file_atomically(path, document.dump(1) + "\n");
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
