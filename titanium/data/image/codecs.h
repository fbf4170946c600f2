// One pair of functions for each format of decode.cpp.
#pragma once

#include "titanium/data/image/decode.h"

namespace titanium::data {

struct Codec {
  ImageFormat format;
  std::string_view name;
  bool (*has_content)(std::string_view bytes);
  ImageSize (*size)(std::string_view bytes);
  Image (*decode)(std::string_view bytes, int& orientation);  // Exif's, 1 to 8, where the picture has one
};

Codec jpeg_codec();
Codec png_codec();
Codec webp_codec();

// Throws ImageError for no pixels or more than kMaxPixels.
void check_size(int64_t width, int64_t height);

// The orientation in the TIFF structure of Exif data; 1 when it has none or is damaged.
int exif_orientation(std::string_view tiff);

}  // namespace titanium::data
