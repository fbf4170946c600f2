// bench_images FOLDER SIZE: decodes every picture of a folder and cuts a square of SIZE pixels, on one thread; prints
// seconds of processor time and the number of pictures for each ending. bench/images.py compares with Pillow.
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>

#include "titanium/base/files/file.h"
#include "titanium/data/image/decode.h"
#include "titanium/data/image/resize.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int64_t size = std::atoll(argv[2]);
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    files[entry.path().extension().string()].push_back(titanium::read_file(entry.path(), "picture"));
  for (const auto& [ending, pictures] : files) {
    const std::clock_t begin = std::clock();
    for (const std::string& bytes : pictures) {
      const auto image = titanium::data::decode_image(bytes);
      const auto cut = titanium::data::square_cut(image.width, image.height, size);
      if (cut) titanium::data::square_of(image, size, *cut, cut->places / 2);
    }
    fmt::print("{} {} {}\n", ending, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, pictures.size());
  }
}
