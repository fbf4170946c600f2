#include "titanium/data/tokenizer/model/piece_trie.h"

#include <algorithm>
#include <deque>

namespace titanium::data {
namespace {

struct Range {  // of sorted pieces that share their first `depth` bytes
  size_t begin;
  size_t end;
  size_t depth;
};

struct Child {
  unsigned char label;
  Range range;
};

}  // namespace

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces) {
  std::erase_if(pieces, [](const auto& piece) { return piece.first.empty(); });
  std::ranges::sort(pieces, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  const auto repeated = std::ranges::unique(pieces, [](const auto& a, const auto& b) { return a.first == b.first; });
  pieces.erase(repeated.begin(), repeated.end());
  first_edge_.clear();
  values_.clear();
  std::deque<Range> open = {{0, pieces.size(), 0}};
  for (; !open.empty(); open.pop_front()) {  // breadth first: the children of a node are neighbours
    auto [begin, end, depth] = open.front();
    first_edge_.push_back(static_cast<uint32_t>(labels_.size()));
    const bool ends_here = begin < end && depth > 0 && pieces[begin].first.size() == depth;
    values_.push_back(ends_here ? pieces[begin++].second : -1);
    std::vector<Child> children;
    while (begin < end) {
      const auto label = static_cast<unsigned char>(pieces[begin].first[depth]);
      size_t next = begin;
      while (next < end && static_cast<unsigned char>(pieces[next].first[depth]) == label) ++next;
      children.push_back({label, {begin, next, depth + 1}});
      begin = next;
    }
    const auto size = [](const Child& child) { return child.range.end - child.range.begin; };
    std::ranges::stable_sort(children, std::greater{}, size);
    for (const Child& child : children) {
      labels_.push_back(child.label);
      open.push_back(child.range);
    }
  }
  first_edge_.push_back(static_cast<uint32_t>(labels_.size()));
}

size_t PieceTrie::longest_prefix(std::string_view text) const {
  size_t longest = 0;
  uint32_t node = kRoot;
  for (size_t at = 0; at < text.size(); ++at) {
    node = step(node, static_cast<unsigned char>(text[at]));
    if (node == kNowhere) break;
    if (values_[node] >= 0) longest = at + 1;
  }
  return longest;
}

}  // namespace titanium::data
