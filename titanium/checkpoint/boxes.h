// Boxes of a tensor among each other.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "titanium/tensor/parameter.h"

namespace titanium::checkpoint {

// What two boxes of the same tensor have in common; nothing when that is empty. A box without dims is one element.
std::optional<Box> intersection(const Box& a, const Box& b);

// Two of the boxes that have elements in common, if there are such.
std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const Box> boxes);

// Whether the box has the dims of the tensor and lies inside.
bool lies_inside(const Box& box, const Shape& shape);

// The tensor in slices of a few megabytes, each contiguous and one after another in its order of elements.
std::vector<Box> slices(const Shape& shape, Dtype dtype, int64_t bytes = int64_t{64} << 20);

// "[2:5, 0:8]", as indices are written in Python.
std::string to_string(const Box& box);

}  // namespace titanium::checkpoint
