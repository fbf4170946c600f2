#include <csetjmp>
#include <cstdio>
// libjpeg's header needs stdio.h before it.
#include <jpeglib.h>
// The codes of errors depend on what jpeglib.h says of the library.
#include <jerror.h>

#include "titanium/data/image/codecs.h"

namespace titanium::data {
namespace {

constexpr int kMaxScans = 100;  // a progressive picture has about ten; each costs a pass over all pixels
constexpr std::string_view kExif("Exif\0\0", 6);

// Whether a warning of libjpeg means damage: that it makes pixels up.
bool is_damage(int code) {
  switch (code) {
    case JWRN_ARITH_BAD_CODE:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL:
      return true;
    default:
      return false;
  }
}

// libjpeg with its errors as exceptions. They leave the library with longjmp, so the functions that call it have no
// objects with destructors.
class Jpeg {
 public:
  explicit Jpeg(std::string_view bytes) : bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) { self(info).leave(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && is_damage(info->err->msg_code)) self(info).leave();
    };
    progress_.progress_monitor = [](j_common_ptr info) {
      if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
      Jpeg& jpeg = self(info);
      std::snprintf(jpeg.message_, sizeof(jpeg.message_), "more than %d scans", kMaxScans);
      std::longjmp(jpeg.jump_, 1);
    };
  }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;
  ~Jpeg() { jpeg_destroy_decompress(&info_); }

  void read_header() {
    if (!try_read_header()) refuse();
    check_size(info_.image_width, info_.image_height);
    if (info_.num_components != 1 && info_.num_components != 3 && info_.num_components != 4)
      throw ImageError(fmt::format("has {} components of colour", info_.num_components));
  }

  int64_t width() const { return info_.image_width; }
  int64_t height() const { return info_.image_height; }
  Colors colors() const {
    return info_.num_components == 1 ? Colors::kGrey : info_.num_components == 3 ? Colors::kRgb : Colors::kCmyk;
  }

  int orientation() const {
    for (auto* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (data.starts_with(kExif)) return exif_orientation(data.substr(kExif.size()));
    }
    return 1;
  }

  void read_pixels(Image& image) {
    if (!try_read_pixels(image.pixels.data(), image.width * channels_of(image.colors))) refuse();
  }

 private:
  static Jpeg& self(j_common_ptr info) { return *static_cast<Jpeg*>(info->client_data); }

  [[noreturn]] void leave() {
    info_.err->format_message(reinterpret_cast<j_common_ptr>(&info_), message_);
    std::longjmp(jump_, 1);
  }

  [[noreturn]] void refuse() const { throw ImageError(fmt::format("is damaged ({})", message_)); }

  bool try_read_header() {
    if (setjmp(jump_) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool try_read_pixels(uint8_t* pixels, int64_t row_bytes) {
    if (setjmp(jump_) != 0) return false;
    info_.progress = &progress_;
    info_.out_color_space = info_.num_components == 1 ? JCS_GRAYSCALE : info_.num_components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + info_.output_scanline * row_bytes;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  std::string_view bytes_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  char message_[JMSG_LENGTH_MAX] = "";
};

ImageSize size_of(std::string_view bytes) {
  Jpeg jpeg(bytes);
  jpeg.read_header();
  return {jpeg.width(), jpeg.height()};
}

Image decode(std::string_view bytes, int& orientation) {
  Jpeg jpeg(bytes);
  jpeg.read_header();
  orientation = jpeg.orientation();
  Image image{.width = jpeg.width(), .height = jpeg.height(), .colors = jpeg.colors(), .pixels = {}};
  image.pixels.resize(static_cast<size_t>(image.width * image.height * channels_of(image.colors)));
  jpeg.read_pixels(image);
  if (image.colors == Colors::kCmyk) {  // Adobe's programs, which write these, store 255 for no ink
    for (uint8_t& ink : image.pixels) ink = static_cast<uint8_t>(255 - ink);
  }
  return image;
}

}  // namespace

Codec jpeg_codec() {
  return {.format = ImageFormat::kJpeg,
          .name = "JPEG",
          .has_content = [](std::string_view bytes) { return bytes.starts_with("\xff\xd8\xff"); },
          .size = size_of,
          .decode = decode};
}

}  // namespace titanium::data
