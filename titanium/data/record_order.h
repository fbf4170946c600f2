// The order in which the records of a data set are read.
//
// A stream asks for records s, s + S, s + 2 S, ...; these are places in the
// order, and the order says which record stands at a place. So positions,
// streams and resuming do not depend on it, and no list is ever built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace titanium::data {

// 64 bits that look random and are a function of `value`: the finaliser of
// splitmix64.
uint64_t mixed_bits(uint64_t value);

// A permutation of 0, ..., size - 1 that is chosen by `key`; what comes at
// `place`. A Feistel network whose results beyond the size are put through it
// again: 30 to 100 ns.
int64_t permuted(int64_t place, int64_t size, uint64_t key);

class RecordOrder {
 public:
  RecordOrder() = default;  // as the files have them
  // Every epoch has an order of its own. `key` tells data sets apart. With the
  // number of records all are permuted; else those of each window of `window`
  // consecutive places.
  static RecordOrder shuffled(int64_t seed, uint64_t key, std::optional<int64_t> records, int64_t window);

  // The record at a place; each lane (Note [Lanes]) has an order of its own. In
  // the last window, which may not be full, it may be one that does not exist:
  // then the place is empty.
  int64_t record(int64_t place, int64_t epoch, int64_t lane = 0) const;
  // Where the window of `place` begins, if there are windows: when that record
  // does not exist, no later one does.
  std::optional<int64_t> window_begin(int64_t place) const {
    return window_ == 0 ? std::nullopt : std::optional(place - place % window_);
  }

  // What must be the same for a saved position to mean the same; empty: as the
  // files have them.
  const std::string& name() const { return name_; }

 private:
  bool shuffled_ = false;
  uint64_t key_ = 0;
  int64_t records_ = 0;
  int64_t window_ = 0;
  std::string name_;
};

}  // namespace titanium::data
