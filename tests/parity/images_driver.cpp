// The C++ half of images.py: reads every picture of a folder and writes what it has found.
//
//   images_driver IN OUT SIZE PLACE
//
// For each file of IN: OUT/<name>.decoded with a line "width height colors" and the pixels, or a line "error: ...";
// OUT/<name>.square with the bytes of the square of SIZE pixels at PLACE thousandths of the places that it may have;
// OUT/<name>.png with what the PNG writer makes of the picture in red, green and blue.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "titanium/data/image/decode.h"
#include "titanium/data/image/resize.h"

namespace {

using namespace titanium::data;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path& path, const std::string& head, const std::vector<uint8_t>& pixels) {
  std::ofstream file(path, std::ios::binary);
  file << head;
  file.write(reinterpret_cast<const char*>(pixels.data()), static_cast<std::streamsize>(pixels.size()));
}

void show(const std::filesystem::path& from, const std::filesystem::path& to, int64_t size, int64_t place) {
  constexpr const char* kNames[] = {"L", "LA", "RGB", "RGBA", "CMYK"};
  const auto with = [&](const char* ending) { return to / (from.filename().string() + ending); };
  try {
    const Image image = decode_image(read(from));
    write(with(".decoded"),
          fmt::format("{} {} {}\n", image.width, image.height, kNames[static_cast<int>(image.colors)]), image.pixels);
    const Image rgb = to_rgb(image);
    const std::pair<std::string, std::string> texts[] = {{"Description", "grün"}};
    std::ofstream(with(".png"), std::ios::binary) << encode_png(rgb.width, rgb.height, rgb.pixels, texts);
    if (const auto cut = square_cut(image.width, image.height, size))
      write(with(".square"), "", square_of(image, size, *cut, (cut->places - 1) * place / 1000));
  } catch (const ImageError& error) {
    write(with(".decoded"), fmt::format("error: {}\n", error.what()), {});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    show(entry.path(), argv[2], std::atoll(argv[3]), std::atoll(argv[4]));
  return 0;
}
