// What this process last exchanged with others: the first thing to look at when ranks wait for each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::comm {

struct CollectiveRecord {
  enum class State { kIssued, kWaiting, kFinished, kFailed };

  uint64_t sequence = 0;  // counts from 1; 0 in a slot that was never used
  const char* name = "";  // "all_gather"
  std::string axis;
  int group_rank = 0;
  int group_size = 1;
  int64_t bytes = 0;  // of the larger of input and output on this rank
  Dtype dtype = Dtype::Undefined;
  int64_t step = 0;
  State state = State::kIssued;
  std::chrono::system_clock::time_point issued, finished;  // `finished`: when `wait` returned
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

  // Group calls these. `issue` fills in sequence, step and time and returns the sequence.
  uint64_t issue(CollectiveRecord record);
  void waiting(uint64_t sequence);
  void finished(uint64_t sequence, bool failed);

  // "all_gather on axis fsdp in step 7": what a thread waits for; else the oldest collective that nobody waited for;
  // else "no collective (the last was all_gather on axis fsdp) in step 7".
  std::string describe_current() const;
  // Oldest first.
  std::vector<CollectiveRecord> records() const;
  // The same as JSON. Throws Error when the file cannot be written.
  void dump(const std::filesystem::path& path) const;

 private:
  CollectiveRecord* find(uint64_t sequence);

  mutable std::mutex mutex_;
  std::vector<CollectiveRecord> ring_;
  uint64_t last_sequence_ = 0;
  int64_t step_ = 0;
};

// The recorder of this process. Ranks that are threads share it.
FlightRecorder& flight_recorder();

// The line with which a process ends that a failure elsewhere stops: "rank 1: stopped in all_gather on axis fsdp in
// step 7, because rank 3 died".
std::string stop_line(int rank, const std::string& cause);

}  // namespace titanium::comm
