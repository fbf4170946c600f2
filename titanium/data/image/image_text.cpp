#include "titanium/data/image/image_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"
#include "titanium/base/text/utf8.h"
#include "titanium/data/document.h"
#include "titanium/data/format/tar_members.h"

namespace titanium::data {
namespace {

constexpr std::array<std::string_view, 4> kImageEndings = {"jpg", "jpeg", "png", "webp"};

const SamplePart* find_part(const std::vector<SamplePart>& parts, std::string_view ending) {
  const auto found = std::ranges::find(parts, ending, &SamplePart::ending);
  return found == parts.end() ? nullptr : &*found;
}

std::string caption_of_json(std::string_view content) {
  try {
    const nlohmann::json object = parse_json(std::string(content));
    const nlohmann::json& caption = object.at("caption");
    return caption.is_array() ? caption.at(0).get<std::string>() : caption.get<std::string>();
  } catch (const std::exception&) {
    throw Error("has no string \"caption\" in its .json");
  }
}

std::string caption_of(const std::vector<SamplePart>& parts) {
  const SamplePart* text = find_part(parts, "txt");
  const SamplePart* json = find_part(parts, "json");
  if (text == nullptr && json == nullptr) throw Error("has no caption (.txt or .json)");
  std::string caption = text != nullptr ? std::string(text->content) : caption_of_json(json->content);
  if (caption.empty()) throw Error("has an empty caption");
  if (!is_utf8(caption)) throw Error("has a caption that is not UTF-8");
  return caption;
}

}  // namespace

std::string refusal(const Record& record, std::string_view key, const std::string& problem) {
  return fmt::format(
      "{}:{}: sample {} {}. Repair or remove it, or set training.skip_bad_records to leave such samples out.",
      record.file->path.string(), record.line, printable(key), problem);
}

ImageText image_text(const Record& record) {
  TI_ASSERT(record.block->content == Content::kSample);
  const std::vector<SamplePart> parts = sample_parts(record.bytes);
  ImageText found{.key = parts.empty() ? "" : parts[0].key, .image = {}, .caption = {}};
  try {
    const auto image = std::ranges::find_if(
        parts, [](const SamplePart& part) { return std::ranges::count(kImageEndings, part.ending) > 0; });
    if (image == parts.end()) throw Error("has no image (.jpg, .jpeg, .png or .webp)");
    if (image->content.empty()) throw Error("has an image of no bytes");
    found.image = image->content;
    found.caption = caption_of(parts);
  } catch (const Error& error) {
    throw BadRecord(refusal(record, found.key, error.what()));
  }
  return found;
}

}  // namespace titanium::data
