#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "titanium/data/image/codecs.h"

namespace titanium::data {
namespace {

const uint8_t* data_of(std::string_view bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

WebPBitstreamFeatures features_of(std::string_view bytes) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK)
    throw ImageError("is damaged (it has no header of WebP)");
  check_size(features.width, features.height);
  return features;
}

int orientation_of(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) == 0) return 1;
  const std::string_view exif(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size);
  const size_t begin = exif.starts_with(std::string_view("Exif\0\0", 6)) ? 6 : 0;
  const int orientation = exif_orientation(exif.substr(begin));
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

void decode_still(std::string_view bytes, Image& image) {
  const auto stride = static_cast<int>(image.width * channels_of(image.colors));
  auto* const into = image.colors == Colors::kRgba ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (into(data_of(bytes), bytes.size(), image.pixels.data(), image.pixels.size(), stride) == nullptr)
    throw ImageError("is damaged (its data of WebP is not valid or ends too early)");
}

// The first frame, on its canvas.
void decode_animation(std::string_view bytes, Image& image) {
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);
  options.color_mode = MODE_RGBA;
  const WebPData data = {data_of(bytes), bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(WebPAnimDecoderNew(&data, &options),
                                                                                   &WebPAnimDecoderDelete);
  uint8_t* canvas = nullptr;
  int timestamp = 0;
  if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &canvas, &timestamp) == 0)
    throw ImageError("is damaged (its first frame is not valid or ends too early)");
  const int64_t channels = channels_of(image.colors);
  for (int64_t i = 0; i < image.width * image.height; ++i)
    std::copy_n(canvas + i * 4, channels, image.pixels.data() + i * channels);
}

ImageSize size_of(std::string_view bytes) {
  const WebPBitstreamFeatures features = features_of(bytes);
  return {features.width, features.height};
}

Image decode(std::string_view bytes, int& orientation) {
  const WebPBitstreamFeatures features = features_of(bytes);
  Image image{.width = features.width,
              .height = features.height,
              .colors = features.has_alpha != 0 ? Colors::kRgba : Colors::kRgb,
              .pixels = {}};
  const WebPData data = {data_of(bytes), bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data), &WebPDemuxDelete);
  if (demuxer == nullptr) throw ImageError("is damaged (its chunks are not those of WebP, or it ends too early)");
  orientation = orientation_of(demuxer.get());
  image.pixels.resize(static_cast<size_t>(image.width * image.height * channels_of(image.colors)));
  if (features.has_animation != 0) {
    decode_animation(bytes, image);
  } else {
    decode_still(bytes, image);
  }
  return image;
}

}  // namespace

Codec webp_codec() {
  return {.format = ImageFormat::kWebp,
          .name = "WebP",
          .has_content =
              [](std::string_view bytes) {
                return bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP";
              },
          .size = size_of,
          .decode = decode};
}

}  // namespace titanium::data
