// Curves with more points than a screen can show.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace titanium::observe {

// Which points to draw of a curve, in order: of each of `most` / 2 equal ranges of points those with the least and the
// greatest value, so that no spike is lost; all of them when there are at most `most`. A range without a number keeps
// one point, which is a gap. The first and the last point stay.
std::vector<size_t> thin(std::span<const double> values, size_t most);

}  // namespace titanium::observe
