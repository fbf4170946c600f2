// Pictures to squares of one size, as torchtitan makes them with Pillow.
#pragma once

#include <optional>

#include "titanium/data/image/image.h"

namespace titanium::data {

struct Region {
  int64_t left = 0;
  int64_t top = 0;
  int64_t width = 0;
  int64_t height = 0;
};

// The region of what `image` becomes when it is resized to width x height with Pillow's bicubic filter (support 2,
// wider where the picture shrinks; columns first, then rows, 8 bits in between). Bit by bit as Pillow; colours with an
// alpha channel are multiplied by it before and divided by it after, as there. Only what the region needs is computed.
Image resized(const Image& image, int64_t width, int64_t height, const Region& region);

// Red, green and blue: grey repeated, alpha left out, inks as light.
Image to_rgb(const Image& image);

// Where a square is cut from a picture of width x height: its shorter side is resized to `size`, the longer one in
// proportion, rounded up.
struct SquareCut {
  int64_t width = 0;  // of the picture that is cut
  int64_t height = 0;
  int64_t places = 1;  // at which the square may begin along the longer side
};
// Nothing for a picture with a side below `size`.
std::optional<SquareCut> square_cut(int64_t width, int64_t height, int64_t size);

// The square at `place`, as [3, size, size].
std::vector<uint8_t> square_of(const Image& image, int64_t size, const SquareCut& cut, int64_t place);

}  // namespace titanium::data
