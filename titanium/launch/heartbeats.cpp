#include "titanium/launch/heartbeats.h"

namespace titanium::launch {

Heartbeats::Heartbeats(int nodes, Time now) : nodes_(static_cast<size_t>(nodes), Node{0, now}) {}

void Heartbeats::count(int node, int64_t beats, Time now) {
  Node& known = nodes_[static_cast<size_t>(node)];
  if (beats != known.beats) known = {beats, now};
}

std::optional<int> Heartbeats::silent_node(Time now) const {
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (now - nodes_[node].changed >= kLongestSilence) return static_cast<int>(node);
  }
  return std::nullopt;
}

}  // namespace titanium::launch
