// Boxes of a tensor among each other.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "titanium/tensor/parameter.h"

namespace titanium::checkpoint {

// Two of the boxes that have elements in common, if there are such. Empty boxes have none.
std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const Box> boxes);

// Whether boxes that lie inside a tensor of that shape hold each of its elements once.
bool cover_exactly(std::span<const Box> boxes, const Shape& shape);

// Whether the box has the dims of the tensor and lies inside.
bool lies_inside(const Box& box, const Shape& shape);

constexpr int64_t kSliceBytes = int64_t{64} << 20;

// Calls use(box) for slices of at most `bytes`, each contiguous and one after another in the tensor's order of
// elements. They are not listed: a damaged file may announce a tensor of any size.
void for_each_slice(const Shape& shape, Dtype dtype, int64_t bytes, const std::function<void(const Box&)>& use);

// "[2:5, 0:8]", as indices are written in Python.
std::string to_string(const Box& box);

}  // namespace titanium::checkpoint
