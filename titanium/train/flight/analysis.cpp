#include "titanium/train/flight/analysis.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

namespace titanium::train {
namespace {

using Ranks = std::set<int>;

// What the members of a group have recorded under one number.
struct Meeting {
  std::map<int, const FlightEntry*> joined;
  Ranks absent;   // have a dump and did not come to it
  Ranks unknown;  // have no dump

  const FlightEntry& any() const { return *joined.begin()->second; }
  int64_t began() const {
    int64_t first = std::numeric_limits<int64_t>::max();
    for (const auto& [rank, entry] : joined) first = std::min(first, entry->created_ns);
    return first;
  }
  Ranks waiting() const {
    Ranks ranks;
    for (const auto& [rank, entry] : joined)
      if (entry->waited_for) ranks.insert(rank);
    return ranks;
  }
  Ranks open() const {
    Ranks ranks;
    for (const auto& [rank, entry] : joined)
      if (entry->state != "completed") ranks.insert(rank);
    return ranks;
  }
  Ranks away() const {
    Ranks ranks = absent;
    ranks.insert(unknown.begin(), unknown.end());
    return ranks;
  }
};

std::string text_of(const Ranks& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", *ranks.begin());
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), std::prev(ranks.end()), ", "), *ranks.rbegin());
}

std::string place_of(const FlightEntry& entry) {
  const std::string step = entry.step > 0 ? fmt::format(", step {}", entry.step) : "";
  return fmt::format("collective {} on axis {}{}", entry.number, entry.axis, step);
}

// Earliest first.
std::vector<Meeting> meetings_of(const Flights& flights) {
  // Groups of one name have no member in common, so that the first one tells them apart.
  std::map<std::tuple<std::string, int, int64_t>, Meeting> found;
  std::map<std::pair<int, std::string>, int64_t> last;  // number that a rank has come to in a group
  for (const auto& [rank, flight] : flights) {
    for (const FlightEntry& entry : flight.entries) {
      found[{entry.group, entry.members->front(), entry.number}].joined[rank] = &entry;
      int64_t& number = last[{rank, entry.group}];
      number = std::max(number, entry.number);
    }
  }
  std::vector<Meeting> meetings;
  for (auto& [key, meeting] : found) {
    // Only what is open or differs is of interest, and to know who was absent takes a while.
    const FlightEntry& entry = meeting.any();
    for (const int member : meeting.open().empty() ? std::vector<int>() : *entry.members) {
      if (meeting.joined.contains(member)) continue;
      const auto flight = flights.find(member);
      const auto reached = last.find({member, entry.group});
      if (flight == flights.end()) {
        meeting.unknown.insert(member);
      } else if (reached == last.end() ? flight->second.whole : reached->second < entry.number) {
        meeting.absent.insert(member);  // what it has overwritten may have been there
      }
    }
    meetings.push_back(std::move(meeting));
  }
  std::ranges::stable_sort(meetings, {}, &Meeting::began);
  return meetings;
}

// The ranks of each call, the call that most ranks made first.
std::vector<Ranks> by_call(const Meeting& meeting) {
  std::map<std::string, Ranks> calls;
  for (const auto& [rank, entry] : meeting.joined) calls[entry->must_match].insert(rank);
  std::vector<Ranks> sorted;
  for (const auto& [call, ranks] : calls) sorted.push_back(ranks);
  std::ranges::stable_sort(sorted, std::greater(), &Ranks::size);
  return sorted;
}

std::string explain_mismatch(const Meeting& meeting, const std::vector<Ranks>& calls) {
  const auto call_of = [&](const Ranks& ranks) { return meeting.joined.at(*ranks.begin())->operation; };
  const FlightEntry& entry = *meeting.joined.at(*calls[0].begin());
  if (calls[0].size() == calls[1].size()) {
    return fmt::format("{} called {} and {} called {} as {}.", text_of(calls[0]), call_of(calls[0]), text_of(calls[1]),
                       call_of(calls[1]), place_of(entry));
  }
  std::vector<std::string> others;
  for (size_t i = 1; i < calls.size(); ++i)
    others.push_back(fmt::format("{} called {}", text_of(calls[i]), call_of(calls[i])));
  return fmt::format("{} where {} called {}: {}.", fmt::join(others, ", "), text_of(calls[0]), call_of(calls[0]),
                     place_of(entry));
}

std::string last_of(const RankFlight& flight) {
  if (flight.entries.empty()) return "it has recorded no collective";
  const FlightEntry& last = flight.entries.back();
  return fmt::format("the last that it began was {}, {}, which is {}", last.operation, place_of(last), last.state);
}

std::string explain_absence(const Meeting& meeting, const Ranks& culprits, const Flights& flights) {
  const FlightEntry& entry = meeting.any();
  std::string sentence =
      fmt::format("{} did not join {} ({}), for which {} {}", text_of(culprits), place_of(entry), entry.operation,
                  text_of(meeting.waiting()), meeting.waiting().size() == 1 ? "waits" : "wait");
  Ranks silent;
  for (const int rank : culprits)
    if (!flights.contains(rank)) silent.insert(rank);
  if (!silent.empty()) {
    sentence += fmt::format("; {} left no dump, as a rank does that was killed or stopped", text_of(silent));
  } else if (culprits.size() == 1) {
    sentence += "; " + last_of(flights.at(*culprits.begin()));
  }
  return sentence + ".";
}

std::string place_and_call(const Meeting& meeting) {
  return fmt::format("{} ({})", place_of(meeting.any()), meeting.any().operation);
}

// The rank for which more ranks wait than for any other.
std::optional<int> most_wanted(const std::vector<const Meeting*>& stuck) {
  std::map<int, Ranks> wanted_by;
  for (const Meeting* meeting : stuck)
    for (const int rank : meeting->away()) wanted_by[rank].merge(meeting->waiting());
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto most = std::ranges::max_element(wanted_by, fewer);
  const auto as_many = [&](const auto& other) { return other.second.size() == most->second.size(); };
  return std::ranges::count_if(wanted_by, as_many) == 1 ? std::optional(most->first) : std::nullopt;
}

// Everybody for whom somebody waits, waits too.
std::string explain_circle(const std::vector<const Meeting*>& stuck) {
  if (const auto culprit = most_wanted(stuck)) {
    const auto left_out = [&](const Meeting* meeting) { return meeting->away().contains(*culprit); };
    const auto waits_in = [&](const Meeting* meeting) { return meeting->waiting().contains(*culprit); };
    const Meeting& out = **std::ranges::find_if(stuck, left_out);
    const Meeting& in = **std::ranges::find_if(stuck, waits_in);
    return fmt::format("rank {} left out {}, for which {} {}, and waits itself in {} for {}.", *culprit,
                       place_and_call(out), text_of(out.waiting()), out.waiting().size() == 1 ? "waits" : "wait",
                       place_and_call(in), text_of(in.away()));
  }
  std::vector<std::string> waits;
  for (const Meeting* meeting : stuck) {
    waits.push_back(fmt::format("{} in {} for {}", text_of(meeting->waiting()), place_and_call(*meeting),
                                text_of(meeting->away())));
  }
  return fmt::format("ranks wait for each other: {}. They call the collectives of these groups in different orders.",
                     fmt::join(waits, "; "));
}

}  // namespace

std::string explain_flights(const Flights& flights) {
  const std::vector<Meeting> meetings = meetings_of(flights);
  for (const Meeting& meeting : meetings) {
    if (const auto calls = by_call(meeting); calls.size() > 1) return explain_mismatch(meeting, calls);
  }
  std::vector<const Meeting*> stuck;
  Ranks blocked;
  for (const Meeting& meeting : meetings) {
    if (meeting.waiting().empty() || meeting.away().empty()) continue;
    stuck.push_back(&meeting);
    blocked.merge(meeting.waiting());
  }
  for (const Meeting* meeting : stuck) {
    Ranks culprits;
    std::ranges::set_difference(meeting->away(), blocked, std::inserter(culprits, culprits.end()));
    if (!culprits.empty()) return explain_absence(*meeting, culprits, flights);
  }
  if (!stuck.empty()) return explain_circle(stuck);
  for (const Meeting& meeting : meetings) {
    if (meeting.waiting().empty()) continue;
    return fmt::format("all ranks joined {} ({}) and it did not end on {}: look at the network and the devices.",
                       place_of(meeting.any()), meeting.any().operation, text_of(meeting.waiting()));
  }
  return fmt::format("nothing is wrong: the {} collectives and messages of {} ranks fit together, and nobody waits.",
                     meetings.size(), flights.size());
}

}  // namespace titanium::train
