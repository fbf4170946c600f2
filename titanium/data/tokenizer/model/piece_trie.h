// A trie over bytes in flat arrays: which pieces begin at a place of a text.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace titanium::data {

// Immutable and thread-safe.
class PieceTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNowhere = ~uint32_t{0};

  PieceTrie() = default;
  // Pieces with values from 0. Of equal ones the one with the largest value counts; empty ones are left out.
  explicit PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces);

  // The node that `byte` leads to from `node`, or kNowhere.
  uint32_t step(uint32_t node, unsigned char byte) const {
    for (uint32_t edge = first_edge_[node]; edge < first_edge_[node + 1]; ++edge) {
      if (labels_[edge] == byte) return edge + 1;  // nodes are numbered by the edge that leads to them
    }
    return kNowhere;
  }
  int32_t value(uint32_t node) const { return values_[node]; }  // -1: no piece ends here

  // The length of the longest piece that `text` begins with; 0: none.
  size_t longest_prefix(std::string_view text) const;

  bool empty() const { return labels_.empty(); }

  template <typename Archive>
  void exchange(Archive& archive) {
    archive(first_edge_, labels_, values_);
  }

 private:
  std::vector<uint32_t> first_edge_ = {0, 0};  // of each node, and the end
  std::vector<unsigned char> labels_;          // of edges, most frequent subtrees first
  std::vector<int32_t> values_ = {-1};         // of nodes
};

}  // namespace titanium::data
