// JPEG (libjpeg-turbo), PNG (libpng) and WebP (libwebp) to pixels, and pixels to PNG.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "titanium/base/error.h"
#include "titanium/data/image/image.h"

namespace titanium::data {

// A picture cannot be used. The message goes on after "the picture ...".
class ImageError : public Error {
 public:
  using Error::Error;
};

enum class ImageFormat { kUnknown, kJpeg, kPng, kWebp };

// What the first bytes say; names and endings of files do not count.
ImageFormat image_format(std::string_view bytes);
std::string_view name_of(ImageFormat format);

inline constexpr int64_t kMaxPixels = int64_t{1} << 26;  // as 8192 x 8192

// The picture as a viewer would show it: turned as its Exif data says, 16 bits reduced to 8, palettes looked up, the
// first frame of an animation, no transparency of single colours. Colours stay as they are stored: profiles are
// ignored. Dimensions are read first, and nothing is allocated for more than kMaxPixels. Throws ImageError when the
// format is unknown, or the data is truncated or damaged, also where a decoder would guess the rest. Thread-safe.
Image decode_image(std::string_view bytes);

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
};
// Width and height as stored, from the header alone. Throws ImageError.
ImageSize image_size(std::string_view bytes);

// A PNG of rows of red, green and blue, 8 bits each. The same pixels give the same bytes. Each text is a pair of a
// keyword (1 to 79 Latin letters) and what is written for it.
std::string encode_png(int64_t width, int64_t height, std::span<const uint8_t> pixels,
                       std::span<const std::pair<std::string, std::string>> texts = {});

}  // namespace titanium::data
