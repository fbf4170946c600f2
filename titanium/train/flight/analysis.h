// Who is to blame when ranks wait for each other: the dumps of all ranks, put together.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace titanium::train {

// One collective, or one message, as one rank has recorded it.
struct FlightEntry {
  std::string group;                                // of ranks; the same on all of its members
  std::string axis;                                 // what people call it
  std::shared_ptr<const std::vector<int>> members;  // ranks of the world, ascending, at least one
  int64_t number = 0;      // within the group: members' entries of the same number belong together
  std::string operation;   // "all_gather of [8] Float"
  std::string must_match;  // what has to be equal on all members
  std::string state;       // "scheduled", "started" or "completed"
  int64_t step = 0;        // 0: unknown
  int64_t created_ns = 0;
  bool waited_for = false;  // the rank cannot go on before it completes
};

struct RankFlight {
  std::vector<FlightEntry> entries;  // oldest first
  bool whole = true;                 // false: older entries have been overwritten
};
using Flights = std::map<int, RankFlight>;  // by rank of the world

// The dumps in `folder`: files whose names end with a rank and that begin with `prefix`, of Titanium or of PyTorch's
// NCCL back end. Throws UsageError when there are none, and Error when one is damaged.
Flights read_flight_dumps(const std::filesystem::path& folder, const std::string& prefix = "rank_");

// One sentence: the rank that called something else than the others; or the rank for which all others wait, whether it
// hangs elsewhere or left no dump; or the ranks that wait for each other; or a collective that everybody has joined and
// that does not end; or that nothing is wrong.
std::string explain_flights(const Flights& flights);

}  // namespace titanium::train
