#include "titanium/data/image/decode.h"

#include <algorithm>
#include <array>

#include "titanium/data/image/codecs.h"

namespace titanium::data {
namespace {

const std::array<Codec, 3>& codecs() {
  static const std::array<Codec, 3> all = {jpeg_codec(), png_codec(), webp_codec()};
  return all;
}

const Codec& codec_of(std::string_view bytes) {
  if (bytes.empty()) throw ImageError("has no bytes");
  for (const Codec& codec : codecs()) {
    if (codec.has_content(bytes)) return codec;
  }
  throw ImageError("is neither JPEG, PNG nor WebP");
}

// Turned or mirrored as orientation 2 to 8 of Exif asks for.
Image oriented(const Image& image, int orientation) {
  const bool transposed = orientation >= 5;
  const bool mirrored = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;  // left to right
  const bool upside_down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image turned{.width = transposed ? image.height : image.width,
               .height = transposed ? image.width : image.height,
               .colors = image.colors,
               .pixels = std::vector<uint8_t>(image.pixels.size())};
  const int64_t channels = channels_of(image.colors);
  uint8_t* out = turned.pixels.data();
  for (int64_t y = 0; y < turned.height; ++y) {
    for (int64_t x = 0; x < turned.width; ++x) {
      const int64_t column = transposed ? y : x, row = transposed ? x : y;
      const int64_t from_x = mirrored ? image.width - 1 - column : column;
      const int64_t from_y = upside_down ? image.height - 1 - row : row;
      const uint8_t* pixel = image.pixels.data() + (from_y * image.width + from_x) * channels;
      out = std::copy_n(pixel, channels, out);
    }
  }
  return turned;
}

}  // namespace

ImageFormat image_format(std::string_view bytes) {
  for (const Codec& codec : codecs()) {
    if (codec.has_content(bytes)) return codec.format;
  }
  return ImageFormat::kUnknown;
}

std::string_view name_of(ImageFormat format) {
  for (const Codec& codec : codecs()) {
    if (codec.format == format) return codec.name;
  }
  return "unknown";
}

ImageSize image_size(std::string_view bytes) { return codec_of(bytes).size(bytes); }

Image decode_image(std::string_view bytes) {
  int orientation = 1;
  Image image = codec_of(bytes).decode(bytes, orientation);
  return orientation >= 2 && orientation <= 8 ? oriented(image, orientation) : image;
}

void check_size(int64_t width, int64_t height) {
  if (width < 1 || height < 1) throw ImageError(fmt::format("is {} x {} pixels large", width, height));
  if (height > kMaxPixels / width)
    throw ImageError(
        fmt::format("is {} x {} pixels large, more than the {} that one may have", width, height, kMaxPixels));
}

int exif_orientation(std::string_view tiff) {
  constexpr uint64_t kOrientation = 0x0112, kShort = 3;
  if (tiff.size() < 8 || (!tiff.starts_with("II") && !tiff.starts_with("MM"))) return 1;
  const bool little = tiff.starts_with("II");
  const auto number = [&](uint64_t at, uint64_t size) {
    uint64_t value = 0;
    for (uint64_t i = 0; i < size; ++i)
      value = value << 8U | static_cast<unsigned char>(tiff[at + (little ? size - 1 - i : i)]);
    return value;
  };
  const uint64_t directory = number(4, 4);
  if (number(2, 2) != 42 || directory + 2 > tiff.size()) return 1;
  const uint64_t entries = number(directory, 2);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + i * 12;
    if (entry + 12 > tiff.size()) break;
    if (number(entry, 2) != kOrientation || number(entry + 2, 2) != kShort) continue;
    const uint64_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace titanium::data
