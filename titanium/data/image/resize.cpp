#include "titanium/data/image/resize.h"

#include <algorithm>
#include <cmath>

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

constexpr int kPrecision = 22;  // bits of the fraction of a weight: 8 bits of a pixel and two of headroom remain of 32
constexpr double kSupport = 2;  // of the filter, in pixels of the larger scale

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

// Which pixels of a line a new pixel is made of, and how much of each.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

int32_t fixed_point(double weight) {
  return static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kPrecision));
}

// For new pixels [first, first + count) of a line of `from` pixels that becomes one of `to`.
std::vector<Taps> taps_of(int64_t from, int64_t to, int64_t first, int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double filter_scale = std::max(scale, 1.0);
  const double support = kSupport * filter_scale;
  std::vector<Taps> all(static_cast<size_t>(count));
  std::vector<double> weights;
  for (int64_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(first + i) + 0.5) * scale;
    // Pillow rounds in the same way, and the bits follow from it.
    // NOLINTBEGIN(bugprone-incorrect-roundings)
    const int64_t begin = std::max(static_cast<int64_t>(center - support + 0.5), int64_t{0});
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), from);
    // NOLINTEND(bugprone-incorrect-roundings)
    double sum = 0;
    weights.clear();
    for (int64_t x = begin; x < end; ++x) {
      weights.push_back(bicubic((static_cast<double>(x) - center + 0.5) * (1 / filter_scale)));
      sum += weights.back();
    }
    Taps& taps = all[static_cast<size_t>(i)];
    taps.first = begin;
    for (const double weight : weights) taps.weights.push_back(fixed_point(sum == 0 ? weight : weight / sum));
  }
  return all;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kPrecision, 0, 255)); }

template <int kChannels>
void resize_row(const uint8_t* row, const std::vector<Taps>& columns, uint8_t* out) {
  for (const Taps& taps : columns) {
    int32_t sums[kChannels];
    std::fill_n(sums, kChannels, 1 << (kPrecision - 1));
    const uint8_t* pixel = row + taps.first * kChannels;
    for (const int32_t weight : taps.weights) {
      for (int c = 0; c < kChannels; ++c) sums[c] += pixel[c] * weight;
      pixel += kChannels;
    }
    for (int c = 0; c < kChannels; ++c) *out++ = rounded(sums[c]);
  }
}

// Rows [first, first + count), columns resized.
Image resize_columns(const Image& image, const std::vector<Taps>& columns, int64_t first, int64_t count) {
  const int64_t channels = channels_of(image.colors);
  Image out{.width = std::ssize(columns), .height = count, .colors = image.colors, .pixels = {}};
  out.pixels.resize(static_cast<size_t>(out.width * out.height * channels));
  constexpr decltype(&resize_row<1>) kRows[] = {resize_row<1>, resize_row<2>, resize_row<3>, resize_row<4>};
  for (int64_t y = 0; y < count; ++y)
    kRows[channels - 1](image.pixels.data() + (first + y) * image.width * channels, columns,
                        out.pixels.data() + y * out.width * channels);
  return out;
}

// `first` is the row that image begins with, in the numbers of the taps.
Image resize_rows(const Image& image, const std::vector<Taps>& rows, int64_t first) {
  const int64_t row_bytes = image.width * channels_of(image.colors);
  Image out{.width = image.width, .height = std::ssize(rows), .colors = image.colors, .pixels = {}};
  out.pixels.resize(static_cast<size_t>(out.height * row_bytes));
  std::vector<int32_t> sums(static_cast<size_t>(row_bytes));
  uint8_t* pixel = out.pixels.data();
  for (const Taps& taps : rows) {
    std::ranges::fill(sums, 1 << (kPrecision - 1));
    const uint8_t* row = image.pixels.data() + (taps.first - first) * row_bytes;
    for (const int32_t weight : taps.weights) {
      for (size_t x = 0; x < sums.size(); ++x) sums[x] += row[x] * weight;
      row += row_bytes;
    }
    for (const int32_t sum : sums) *pixel++ = rounded(sum);
  }
  return out;
}

Image cropped(const Image& image, const Region& region) {
  const int64_t channels = channels_of(image.colors);
  Image out{.width = region.width, .height = region.height, .colors = image.colors, .pixels = {}};
  out.pixels.reserve(static_cast<size_t>(region.width * region.height * channels));
  for (int64_t y = 0; y < region.height; ++y) {
    const uint8_t* row = image.pixels.data() + ((region.top + y) * image.width + region.left) * channels;
    out.pixels.insert(out.pixels.end(), row, row + region.width * channels);
  }
  return out;
}

// a * b / 255, rounded.
int32_t product_of_255ths(int32_t a, int32_t b) {
  const int32_t product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

bool has_alpha(Colors colors) { return colors == Colors::kGreyAlpha || colors == Colors::kRgba; }

void multiply_by_alpha(Image& image) {
  const int64_t channels = channels_of(image.colors);
  for (auto pixel = image.pixels.begin(); pixel != image.pixels.end(); pixel += channels)
    for (int64_t c = 0; c + 1 < channels; ++c)
      pixel[c] = static_cast<uint8_t>(product_of_255ths(pixel[c], pixel[channels - 1]));
}

void divide_by_alpha(Image& image) {
  const int64_t channels = channels_of(image.colors);
  for (auto pixel = image.pixels.begin(); pixel != image.pixels.end(); pixel += channels) {
    const int32_t alpha = pixel[channels - 1];
    if (alpha == 0 || alpha == 255) continue;
    for (int64_t c = 0; c + 1 < channels; ++c) pixel[c] = static_cast<uint8_t>(std::min(255 * pixel[c] / alpha, 255));
  }
}

// All channels alike. The order of the two passes, which shows in the last bit, is Pillow's since version 13: rows
// first where the height shrinks by more than twice as many pixels as the width.
Image resample(const Image& image, int64_t width, int64_t height, const Region& region) {
  const bool same_width = width == image.width, same_height = height == image.height;
  if (same_width && same_height) return cropped(image, region);
  const auto columns = taps_of(image.width, width, region.left, region.width);
  if (same_height) return resize_columns(image, columns, region.top, region.height);
  const auto rows = taps_of(image.height, height, region.top, region.height);
  const int64_t first = rows.front().first;
  const int64_t count = rows.back().first + std::ssize(rows.back().weights) - first;
  if (same_width) return resize_rows(cropped(image, {region.left, first, region.width, count}), rows, first);
  if (height < image.height && image.height - height > 2 * (image.width - width))
    return resize_columns(resize_rows(image, rows, 0), columns, 0, region.height);
  return resize_rows(resize_columns(image, columns, first, count), rows, first);
}

}  // namespace

Image resized(const Image& image, int64_t width, int64_t height, const Region& region) {
  TI_ASSERT(region.left >= 0 && region.top >= 0 && region.width > 0 && region.height > 0 &&
            region.left + region.width <= width && region.top + region.height <= height);
  const bool same_size = width == image.width && height == image.height;
  if (same_size || !has_alpha(image.colors)) return resample(image, width, height, region);
  Image weighted = image;
  multiply_by_alpha(weighted);
  Image out = resample(weighted, width, height, region);
  divide_by_alpha(out);
  return out;
}

Image to_rgb(const Image& image) {
  if (image.colors == Colors::kRgb) return image;
  const int64_t channels = channels_of(image.colors);
  Image out{.width = image.width, .height = image.height, .colors = Colors::kRgb, .pixels = {}};
  out.pixels.reserve(static_cast<size_t>(image.width * image.height * 3));
  for (auto pixel = image.pixels.begin(); pixel != image.pixels.end(); pixel += channels) {
    for (int64_t c = 0; c < 3; ++c) {
      switch (image.colors) {
        case Colors::kGrey:
        case Colors::kGreyAlpha:
          out.pixels.push_back(pixel[0]);
          break;
        case Colors::kCmyk: {
          const int32_t light = 255 - pixel[3];
          out.pixels.push_back(static_cast<uint8_t>(light - product_of_255ths(pixel[c], light)));
          break;
        }
        default:
          out.pixels.push_back(pixel[c]);
      }
    }
  }
  return out;
}

std::optional<SquareCut> square_cut(int64_t width, int64_t height, int64_t size) {
  if (width < size || height < size) return std::nullopt;
  const auto longer = [size](int64_t shorter_side, int64_t longer_side) {
    const double scale = static_cast<double>(size) / static_cast<double>(shorter_side);
    return static_cast<int64_t>(std::ceil(scale * static_cast<double>(longer_side)));
  };
  if (width >= height) {
    const int64_t resized_width = std::max(longer(height, width), size);
    return SquareCut{.width = resized_width, .height = size, .places = resized_width - size + 1};
  }
  const int64_t resized_height = std::max(longer(width, height), size);
  return SquareCut{.width = size, .height = resized_height, .places = resized_height - size + 1};
}

std::vector<uint8_t> square_of(const Image& image, int64_t size, const SquareCut& cut, int64_t place) {
  TI_ASSERT(place >= 0 && place < cut.places, "place {} of {}", place, cut.places);
  const bool wide = cut.width > cut.height;
  const Region region = {.left = wide ? place : 0, .top = wide ? 0 : place, .width = size, .height = size};
  const Image square = to_rgb(resized(image, cut.width, cut.height, region));
  std::vector<uint8_t> planes(square.pixels.size());
  const int64_t area = size * size;
  for (int64_t i = 0; i < area; ++i)
    for (int64_t c = 0; c < 3; ++c)
      planes[static_cast<size_t>(c * area + i)] = square.pixels[static_cast<size_t>(i * 3 + c)];
  return planes;
}

}  // namespace titanium::data
