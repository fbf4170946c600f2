// What a checkpoint keeps of the data: one small position per stream, no
// tokens.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "titanium/data/stream.h"

namespace titanium::data {

// What is kept of one source: a position for each stream that has read from it.
struct SourceState {
  std::string name;
  std::string fingerprint;  // of the data files
  std::string order;        // RecordOrder::name
  Striping striping{};      // runs from before it was chosen are dealt by records
  std::map<int64_t, StreamPosition> positions;

  bool operator==(const SourceState&) const = default;
};

// The state of one rank has the positions of its own streams; merged over all
// ranks it has every stream, and any number of ranks can go on from it. 24 to
// 80 bytes per stream and source.
struct LoaderState {
  int64_t streams = 0;
  int64_t seq_len = 0;
  std::map<int64_t, int64_t> turns;  // of each stream: the samples that it has delivered
  std::vector<SourceState> sources;

  bool operator==(const LoaderState&) const = default;
};

std::string to_json(const LoaderState& state);

// Throws Error when `json` is not what to_json writes, or wrote when a run had
// one source and no name for it: that source then has an empty name.
LoaderState loader_state_from_json(const std::string& json);

// The union of the states of all ranks. Throws Error if they are not of the
// same run.
LoaderState merge(const std::vector<LoaderState>& states);

}  // namespace titanium::data
