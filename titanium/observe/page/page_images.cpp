#include "titanium/observe/page/page_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "titanium/base/text/base64.h"

namespace titanium::observe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using std::string_view_literals::operator""sv;

constexpr size_t kMostImages = 1000;  // of a run on its page

// Nothing for what is missing or outside of `folder`.
std::optional<fs::path> inside_of(const fs::path& folder, const std::string& file) {
  std::error_code failed;
  const fs::path root = fs::canonical(folder, failed);
  if (failed) return std::nullopt;
  fs::path whole = fs::canonical(root / file, failed);
  const bool is_inside = !failed && std::ranges::mismatch(root, whole).in1 == root.end();
  return is_inside && fs::is_regular_file(whole, failed) ? std::optional(std::move(whole)) : std::nullopt;
}

bool is_whole_png(std::string_view bytes) {
  constexpr auto kBegin = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR"sv, kEnd = "\0\0\0\0IEND\xae\x42\x60\x82"sv;
  return bytes.size() >= kBegin.size() + kEnd.size() && bytes.starts_with(kBegin) && bytes.ends_with(kEnd);
}

enum class Found { kImage, kNothing, kTooLarge };

Found read_image(const fs::path& folder, const std::string& file, size_t room, std::string& bytes) {
  const auto path = inside_of(folder, file);
  std::error_code failed;
  const uintmax_t size = path ? fs::file_size(*path, failed) : 0;
  if (!path || failed) return Found::kNothing;
  if (size > room) return Found::kTooLarge;
  bytes.resize(size);
  std::ifstream stream(*path, std::ios::binary);
  if (!stream.read(bytes.data(), static_cast<std::streamsize>(size))) return Found::kNothing;
  return is_whole_png(bytes) ? Found::kImage : Found::kNothing;
}

std::string counted(size_t count) { return fmt::format("{} image{}", count, count == 1 ? "" : "s"); }

}  // namespace

Json PageImages::of_run(const RunFolder& run) {
  size_t shown = 0, unusable = 0, left_out = 0;
  Json steps = Json::array();
  for (auto drawn = run.data().images.rbegin(); drawn != run.data().images.rend(); ++drawn) {
    Json images = Json::array();
    for (const RunImage& image : drawn->second) {
      std::string bytes;
      const bool is_listed = only_lists_ || shown == kMostImages;
      const Found found = is_listed ? Found::kTooLarge : read_image(run.path(), image.file, room_, bytes);
      unusable += found == Found::kNothing ? 1 : 0;
      left_out += found == Found::kTooLarge ? 1 : 0;
      if (only_lists_) images.push_back({{"caption", image.caption}});
      if (found != Found::kImage) continue;
      ++shown;
      room_ -= bytes.size();
      images.push_back({{"caption", image.caption}, {"src", "data:image/png;base64," + to_base64(bytes)}});
    }
    if (!images.empty()) steps.push_back({{"step", drawn->first}, {"images", std::move(images)}});
  }
  notes_.clear();
  if (only_lists_) return steps;
  if (unusable > 0)
    notes_.push_back(fmt::format("{} left out: missing, damaged or not in the run's folder.", counted(unusable)));
  if (left_out > 0) notes_.push_back(fmt::format("{} left out, to keep the page small.", counted(left_out)));
  return steps;
}

}  // namespace titanium::observe
