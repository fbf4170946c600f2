// Notices a launcher that has gone without a word: a machine that crashed, a network that broke.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace titanium::launch {

class Heartbeats {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kLongestSilence{30};

  Heartbeats(int nodes, Time now);

  // `beats` is how often the node has made itself heard so far.
  void count(int node, int64_t beats, Time now);
  // A node whose count has not changed for too long.
  std::optional<int> silent_node(Time now) const;

 private:
  struct Node {
    int64_t beats = 0;
    Time changed;
  };
  std::vector<Node> nodes_;
};

}  // namespace titanium::launch
