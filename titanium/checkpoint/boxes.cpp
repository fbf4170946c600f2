#include "titanium/checkpoint/boxes.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "titanium/base/error.h"

namespace titanium::checkpoint {
namespace {

// The dim that tells most boxes apart.
size_t sweep_dim(std::span<const Box> boxes) {
  size_t best = 0, most = 0;
  for (size_t dim = 0; dim < boxes.front().shape.size(); ++dim) {
    std::set<int64_t> offsets;
    for (const Box& box : boxes) offsets.insert(box.offset[dim]);
    if (offsets.size() > most) best = dim, most = offsets.size();
  }
  return best;
}

}  // namespace

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common;
  for (size_t dim = 0; dim < a.shape.size(); ++dim) {
    const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const int64_t end = std::min(a.offset[dim] + a.shape[dim], b.offset[dim] + b.shape[dim]);
    if (begin >= end) return std::nullopt;
    common.offset.push_back(begin);
    common.shape.push_back(end - begin);
  }
  return common;
}

std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const Box> boxes) {
  if (boxes.size() < 2) return std::nullopt;
  if (boxes.front().shape.empty()) return std::pair<size_t, size_t>(0, 1);
  const size_t dim = sweep_dim(boxes);
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return boxes[i].offset[dim]; });
  std::vector<size_t> open;  // those that may still reach to the next one
  for (const size_t i : order) {
    std::erase_if(open, [&](size_t j) { return boxes[j].offset[dim] + boxes[j].shape[dim] <= boxes[i].offset[dim]; });
    for (const size_t j : open) {
      if (intersection(boxes[i], boxes[j])) return std::pair(j, i);
    }
    open.push_back(i);
  }
  return std::nullopt;
}

bool lies_inside(const Box& box, const Shape& shape) {
  if (box.offset.size() != shape.size() || box.shape.size() != shape.size()) return false;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (box.offset[dim] < 0 || box.shape[dim] < 0 || box.offset[dim] > shape[dim] ||
        box.shape[dim] > shape[dim] - box.offset[dim]) {
      return false;
    }
  }
  return true;
}

std::vector<Box> slices(const Shape& shape, Dtype dtype, int64_t bytes) {
  const Box whole{Shape(shape.size(), 0), shape};
  const auto total = volume(shape) * static_cast<int64_t>(c10::elementSize(dtype));
  if (total <= bytes) return {whole};
  const auto dim =
      static_cast<size_t>(std::ranges::find_if(shape, [](int64_t size) { return size > 1; }) - shape.begin());
  const int64_t step = std::max<int64_t>(bytes / (total / shape[dim]), 1);
  std::vector<Box> found;
  for (int64_t begin = 0; begin < shape[dim]; begin += step) {
    found.push_back(whole);
    found.back().offset[dim] = begin;
    found.back().shape[dim] = std::min(step, shape[dim] - begin);
  }
  return found;
}

std::string to_string(const Box& box) {
  std::string text;
  for (size_t dim = 0; dim < box.shape.size(); ++dim) {
    text += fmt::format("{}{}:{}", dim > 0 ? ", " : "", box.offset[dim], box.offset[dim] + box.shape[dim]);
  }
  return "[" + text + "]";
}

}  // namespace titanium::checkpoint
