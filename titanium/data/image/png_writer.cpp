// A PNG is written without libpng: the format is a list of chunks around one stream of zlib, and so the bytes depend on
// the pixels and on zlib alone.
#include <fmt/format.h>
#include <zlib.h>

#include "titanium/data/image/decode.h"

namespace titanium::data {
namespace {

void append_u32(std::string& out, uint64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift & 0xFFU));
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_u32(out, data.size());
  const size_t begin = out.size();
  out.append(type).append(data);
  append_u32(out, crc32(0, reinterpret_cast<const Bytef*>(out.data()) + begin, static_cast<uInt>(out.size() - begin)));
}

// Each row as differences to the row above (filter 2), which suits pictures better than the bytes themselves.
std::string filtered_rows(int64_t height, int64_t row_bytes, std::span<const uint8_t> pixels) {
  std::string rows;
  rows.reserve(static_cast<size_t>(height * (row_bytes + 1)));
  for (int64_t y = 0; y < height; ++y) {
    rows.push_back(2);
    const uint8_t* row = pixels.data() + y * row_bytes;
    const uint8_t* above = y == 0 ? nullptr : row - row_bytes;
    for (int64_t x = 0; x < row_bytes; ++x)
      rows.push_back(static_cast<char>(row[x] - (above == nullptr ? 0 : above[x])));
  }
  return rows;
}

std::string deflated(std::string_view bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_DEFAULT_COMPRESSION);
  TI_CHECK(status == Z_OK, "A picture cannot be compressed: not enough memory.");
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(int64_t width, int64_t height, std::span<const uint8_t> pixels,
                       std::span<const std::pair<std::string, std::string>> texts) {
  TI_ASSERT(width > 0 && height > 0 && width * height * 3 == std::ssize(pixels) && width * height <= kMaxPixels,
            "{} x {} pixels in {} bytes", width, height, pixels.size());
  std::string out = "\x89PNG\r\n\x1a\n";
  std::string header;
  append_u32(header, static_cast<uint64_t>(width));
  append_u32(header, static_cast<uint64_t>(height));
  header.append({8, 2, 0, 0, 0});  // 8 bits, red green blue, deflate, adaptive filters, not interlaced
  append_chunk(out, "IHDR", header);
  // Keyword, a zero, not compressed, no language and no translated keyword: UTF-8 follows.
  for (const auto& [keyword, text] : texts)
    append_chunk(out, "iTXt", fmt::format("{}{}{}", keyword, std::string(5, '\0'), text));
  append_chunk(out, "IDAT", deflated(filtered_rows(height, width * 3, pixels)));
  append_chunk(out, "IEND", "");
  return out;
}

}  // namespace titanium::data
