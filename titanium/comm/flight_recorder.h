// What this process last exchanged with others: the first thing to look at when ranks wait for each other.
// train/flight/dump.h writes it to disk.
#pragma once

#include <c10/util/SmallVector.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::comm {

// A group of ranks as the recorder knows it.
struct FlightGroup {
  std::string axis;
  std::string name;  // the axis; "fsdp (2)" for the second group of the same axis and members, on all of its ranks
  int rank = 0;      // of this process among the members
  std::vector<int> members;   // ranks of the world
  bool nccl_records = false;  // c10d's NCCL back end knows better what has completed on the device

  int world_rank() const { return members[static_cast<size_t>(rank)]; }

 private:
  friend class FlightRecorder;
  uint64_t collectives_ = 0;
  std::map<std::pair<int, int>, uint64_t> transfers_;  // (from, to)
};

struct CollectiveRecord {
  enum class State { kIssued, kWaiting, kFinished, kFailed };

  uint64_t sequence = 0;   // of this process; counts from 1; 0 in a slot that was never used
  uint64_t record_id = 0;  // of this rank; counts from 0
  const char* name = "";   // "all_gather"
  std::shared_ptr<FlightGroup> group;
  int peer = -1;        // of send and receive, within the group
  uint64_t number = 0;  // of the group's collectives, or of the messages in this direction; counts from 1
  c10::SmallVector<int64_t, 4> input, output;  // shapes
  Dtype dtype = Dtype::Undefined;
  int64_t bytes = 0;  // of the larger of input and output on this rank
  int64_t step = 0;
  std::chrono::milliseconds timeout{0};
  State state = State::kIssued;
  // `waited`: when a thread began to wait for it; `finished`: when `wait` returned. Zero before.
  std::chrono::system_clock::time_point issued, waited, finished;
};

// A ring of the last collectives. Thread safe. Recording takes a lock and no memory.
class FlightRecorder {
 public:
  explicit FlightRecorder(size_t capacity = 2000);

  // Forgets what was recorded. At least 1.
  void set_capacity(size_t capacity);
  // The step of the training loop, which is part of every record and message from now on.
  void set_step(int64_t step);
  int64_t step() const;

  // Group calls these. `issue` fills in sequence, record id, number, step and time and returns the sequence.
  std::shared_ptr<FlightGroup> add_group(const std::string& axis, int rank, const std::vector<int>& members);
  uint64_t issue(CollectiveRecord record);
  void waiting(uint64_t sequence);
  void finished(uint64_t sequence, bool failed);

  // "all_gather on axis fsdp in step 7": what a thread waits for; else the oldest collective that no thread has waited
  // for; else "no collective (the last was all_gather on axis fsdp) in step 7".
  std::string describe_current() const;
  // Oldest first.
  std::vector<CollectiveRecord> records() const;
  // The groups that exist, in the order in which they were made.
  std::vector<std::shared_ptr<const FlightGroup>> groups() const;

 private:
  CollectiveRecord* find(uint64_t sequence);

  mutable std::mutex mutex_;
  std::vector<CollectiveRecord> ring_;
  std::vector<std::weak_ptr<FlightGroup>> groups_;
  std::map<std::string, int> groups_made_;   // by axis, members and rank
  std::map<int, uint64_t> next_record_ids_;  // by rank of the world
  uint64_t last_sequence_ = 0;
  int64_t step_ = 0;
};

// The recorder of this process. Ranks that are threads share it.
FlightRecorder& flight_recorder();

// The line with which a process ends that a failure elsewhere stops: "rank 1: stopped in all_gather on axis fsdp in
// step 7, because rank 3 died".
std::string stop_line(int rank, const std::string& cause);

}  // namespace titanium::comm
