#include <png.h>

#include <csetjmp>
#include <cstring>

#include "titanium/data/image/codecs.h"

namespace titanium::data {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);

// Chunks that say nothing of the pixels and may unfold to many bytes.
constexpr png_byte kIgnored[] = "iCCP\0zTXt\0iTXt\0tEXt\0sPLT\0hIST\0tRNS";
constexpr int kIgnoredCount = 7;

// libpng with its errors as exceptions. They leave the library with longjmp, so the functions that call it have no
// objects with destructors.
class Png {
 public:
  explicit Png(std::string_view bytes) : bytes_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    info_ = png_create_info_struct(png_);
  }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
  ~Png() { png_destroy_read_struct(&png_, &info_, nullptr); }

  void read_header() {
    if (png_ == nullptr || info_ == nullptr) throw ImageError("needs more memory than there is");
    if (!try_read_header()) refuse();
    check_size(width(), height());
  }

  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t height() const { return png_get_image_height(png_, info_); }

  int orientation() const {
    png_uint_32 size = 0;
    png_bytep exif = nullptr;
    if (png_get_eXIf_1(png_, info_, &size, &exif) == 0) return 1;
    return exif_orientation({reinterpret_cast<const char*>(exif), size});
  }

  // 8 bits per channel; palettes as red, green and blue.
  Colors simplify() {
    if (!try_simplify()) refuse();
    switch (png_get_channels(png_, info_)) {
      case 1:
        return Colors::kGrey;
      case 2:
        return Colors::kGreyAlpha;
      case 3:
        return Colors::kRgb;
      default:
        return Colors::kRgba;
    }
  }

  void read_pixels(Image& image) {
    std::vector<png_bytep> rows(static_cast<size_t>(image.height));
    const int64_t row_bytes = image.width * channels_of(image.colors);
    for (size_t y = 0; y < rows.size(); ++y) rows[y] = image.pixels.data() + static_cast<int64_t>(y) * row_bytes;
    if (!try_read_rows(rows.data())) refuse();
  }

 private:
  static void on_error(png_structp png, png_const_charp message) {
    auto& self = *static_cast<Png*>(png_get_error_ptr(png));
    std::snprintf(self.message_, sizeof(self.message_), "%s", message);
    png_longjmp(png, 1);
  }

  static void read_bytes(png_structp png, png_bytep out, size_t size) {
    auto& self = *static_cast<Png*>(png_get_io_ptr(png));
    if (size > self.bytes_.size() - self.at_) png_error(png, "it ends too early");
    std::memcpy(out, self.bytes_.data() + self.at_, size);
    self.at_ += size;
  }

  [[noreturn]] void refuse() const { throw ImageError(fmt::format("is damaged ({})", message_)); }

  bool try_read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, read_bytes);
    png_set_user_limits(png_, kMaxPixels, kMaxPixels);
    png_set_chunk_malloc_max(png_, 8 << 20);
    png_set_chunk_cache_max(png_, 64);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kIgnored, kIgnoredCount);
    png_read_info(png_, info_);
    return true;
  }

  bool try_simplify() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const auto type = png_get_color_type(png_, info_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_16(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool try_read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }

  std::string_view bytes_;
  size_t at_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[128] = "";
};

ImageSize size_of(std::string_view bytes) {
  Png png(bytes);
  png.read_header();
  return {png.width(), png.height()};
}

Image decode(std::string_view bytes, int& orientation) {
  Png png(bytes);
  png.read_header();
  orientation = png.orientation();
  Image image{.width = png.width(), .height = png.height(), .colors = png.simplify(), .pixels = {}};
  image.pixels.resize(static_cast<size_t>(image.width * image.height * channels_of(image.colors)));
  png.read_pixels(image);
  return image;
}

}  // namespace

Codec png_codec() {
  return {.format = ImageFormat::kPng,
          .name = "PNG",
          .has_content = [](std::string_view bytes) { return bytes.starts_with(kSignature); },
          .size = size_of,
          .decode = decode};
}

}  // namespace titanium::data
