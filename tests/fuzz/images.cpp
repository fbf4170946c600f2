// Aimed fuzzing of pictures and archives: damages the files of a folder and reads them in this process, built with the
// address, leak and undefined-behaviour sanitizers:
//
//   tests/parity/images.py --write DIR && ninja -C build-asan fuzz_images && build-asan/fuzz_images DIR 100000
//
// A picture gives pixels or an ImageError, an archive samples or an Error; anything else, an input that takes more than
// 5 s of the processor, and memory that is not given back are findings. A third argument is the first number; the same
// number makes the same input.
#include <fmt/format.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "titanium/data/format/tar_members.h"
#include "titanium/data/image/decode.h"
#include "titanium/data/image/resize.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace titanium::data {
namespace {

constexpr int64_t kSize = 64;
constexpr double kMostSeconds = 5;

uint64_t current_number = 0;

std::vector<std::string> read_folder(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return files;
}

// Half of the edits are in the first 200 bytes, where sizes and tables are.
std::string damaged(std::string bytes, const std::vector<std::string>& files, std::mt19937_64& random) {
  for (uint64_t edits = 1 + random() % 3; edits > 0 && !bytes.empty(); --edits) {
    const size_t at = random() % (random() % 2 == 0 ? std::min<size_t>(bytes.size(), 200) : bytes.size());
    const std::string& other = files[random() % files.size()];
    switch (random() % 7) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(random() % 2 == 0 ? 0xff : 0x7f);
        break;
      case 2:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
        break;
      case 3:
        bytes.erase(at, 1 + random() % 40);
        break;
      case 4:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 60));
        break;
      case 5:
        bytes.resize(at);
        break;
      default:
        if (!other.empty()) bytes.replace(at, 30, other.substr(random() % other.size(), 30));
    }
  }
  return bytes;
}

// The chunks of a PNG with their own checksums, so that what is inside them is looked at.
std::string with_checksums(std::string bytes) {
  const auto number_at = [&](size_t at) {
    uint64_t number = 0;
    for (size_t i = 0; i < 4; ++i) number = number << 8U | static_cast<unsigned char>(bytes[at + i]);
    return number;
  };
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const uint64_t size = number_at(at);
    if (size > bytes.size() - at - 12) break;
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + at + 4, static_cast<uInt>(size + 4));
    for (size_t i = 0; i < 4; ++i) bytes[at + 8 + size + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += size + 12;
  }
  return bytes;
}

void read_image(std::string_view bytes, int64_t& accepted) {
  try {
    const Image image = decode_image(bytes);
    if (const auto cut = square_cut(image.width, image.height, kSize)) square_of(image, kSize, *cut, cut->places - 1);
    ++accepted;
  } catch (const ImageError&) {
  }
}

void read_archive(const std::string& bytes, int64_t& accepted) {
  try {
    for (const SamplePart& part : sample_parts(bytes)) read_image(part.content, accepted);
  } catch (const Error&) {
  }
}

int run(const std::vector<std::string>& files, uint64_t inputs, uint64_t first) {
  int64_t pictures = 0, archives = 0, findings = 0;
  double slowest = 0;
  for (current_number = first; current_number < first + inputs; ++current_number) {
    std::mt19937_64 random(current_number);
    const std::string& file = files[random() % files.size()];
    const std::clock_t begin = std::clock();
    if (random() % 4 == 0) {
      const std::string& other = files[random() % files.size()];
      read_archive(
          damaged(tar_member("a.jpg", file) + tar_member("a.txt", "x") + tar_member("b.png", other), files, random),
          archives);
    } else {
      std::string bytes = damaged(file, files, random);
      if (image_format(bytes) == ImageFormat::kPng && random() % 4 != 0) bytes = with_checksums(std::move(bytes));
      read_image(bytes, pictures);
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    slowest = std::max(slowest, seconds);
    if (seconds <= kMostSeconds) continue;
    ++findings;
    fmt::print("input {} took {:.1f} s\n", current_number, seconds);
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print("{} inputs: {} pictures and {} of archives decoded, slowest {:.2f} s, most memory {} MiB, {} findings\n",
             inputs, pictures, archives, slowest, usage.ru_maxrss >> 10, findings);
  return findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace titanium::data

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  __sanitizer_set_death_callback([] { std::fprintf(stderr, "the input was %lu\n", titanium::data::current_number); });
  const auto files = titanium::data::read_folder(argv[1]);
  return titanium::data::run(files, std::strtoull(argv[2], nullptr, 10),
                             argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
}
