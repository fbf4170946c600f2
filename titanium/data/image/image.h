// A picture in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace titanium::data {

// What the channels of a pixel are.
enum class Colors { kGrey, kGreyAlpha, kRgb, kRgba, kCmyk };  // kCmyk: 0 is no ink

constexpr int64_t channels_of(Colors colors) {
  switch (colors) {
    case Colors::kGrey:
      return 1;
    case Colors::kGreyAlpha:
      return 2;
    case Colors::kRgb:
      return 3;
    case Colors::kRgba:
    case Colors::kCmyk:
      return 4;
  }
  return 0;
}

struct Image {
  int64_t width = 0;
  int64_t height = 0;
  Colors colors = Colors::kRgb;
  std::vector<uint8_t> pixels;  // [height, width, channels]

  bool operator==(const Image&) const = default;
};

}  // namespace titanium::data
