#include "titanium/checkpoint/boxes.h"

#include <algorithm>
#include <limits>

#include "titanium/base/error.h"

namespace titanium::checkpoint {
namespace {

bool is_empty(const Box& box) {
  return std::ranges::any_of(box.shape, [](int64_t size) { return size == 0; });
}

// How many pairs of boxes a sweep along the dim compares: those whose ranges there overlap.
int64_t sweep_cost(std::span<const Box> boxes, std::span<const size_t> chosen, size_t dim) {
  std::vector<std::pair<int64_t, int>> ends;  // at equal places a box ends before the next one begins
  for (const size_t i : chosen) {
    ends.emplace_back(boxes[i].offset[dim], 1);
    ends.emplace_back(boxes[i].offset[dim] + boxes[i].shape[dim], -1);
  }
  std::ranges::sort(ends);
  int64_t open = 0, cost = 0;
  for (const auto& [place, change] : ends) {
    if (change > 0) cost += open;
    open += change;
  }
  return cost;
}

size_t cheapest_dim(std::span<const Box> boxes, std::span<const size_t> chosen) {
  size_t best = 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t dim = 0; dim < boxes.front().shape.size(); ++dim) {
    const int64_t cost = sweep_cost(boxes, chosen, dim);
    if (cost < least) best = dim, least = cost;
  }
  return best;
}

}  // namespace

std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const Box> boxes) {
  std::vector<size_t> order;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!is_empty(boxes[i])) order.push_back(i);
  }
  if (order.size() < 2) return std::nullopt;
  if (boxes.front().shape.empty()) return std::pair(order[0], order[1]);
  const size_t dim = cheapest_dim(boxes, order);
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

bool cover_exactly(std::span<const Box> boxes, const Shape& shape) {
  int64_t missing = volume(shape);
  for (const Box& box : boxes) {
    const int64_t elements = volume(box.shape);
    if (elements > missing) return false;
    missing -= elements;
  }
  return missing == 0 && !find_overlap(boxes);
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

void for_each_slice(const Shape& shape, Dtype dtype, int64_t bytes, const std::function<void(const Box&)>& use) {
  if (volume(shape) == 0) return use({Shape(shape.size(), 0), shape});
  // The last dims that fit, and a range of the one before them.
  size_t cut = shape.size();
  auto inner = static_cast<int64_t>(c10::elementSize(dtype));
  while (cut > 0 && shape[cut - 1] <= bytes / inner) inner *= shape[--cut];
  Box box{Shape(shape.size(), 0), shape};
  if (cut == 0) return use(box);
  const size_t dim = cut - 1;
  const int64_t step = std::max<int64_t>(bytes / inner, 1);
  for (size_t outer = 0; outer < dim; ++outer) box.shape[outer] = 1;
  while (true) {
    for (int64_t begin = 0; begin < shape[dim]; begin += box.shape[dim]) {
      box.offset[dim] = begin;
      box.shape[dim] = std::min(step, shape[dim] - begin);
      use(box);
    }
    size_t next = dim;  // the odometer of the dims before
    while (next > 0 && ++box.offset[next - 1] == shape[next - 1]) box.offset[--next] = 0;
    if (next == 0) return;
  }
}

std::string to_string(const Box& box) {
  std::string text;
  for (size_t dim = 0; dim < box.shape.size(); ++dim) {
    text += fmt::format("{}{}:{}", dim > 0 ? ", " : "", box.offset[dim], box.offset[dim] + box.shape[dim]);
  }
  return "[" + text + "]";
}

}  // namespace titanium::checkpoint
