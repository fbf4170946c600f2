#include "titanium/data/inspection.h"

#include <limits>

#include "titanium/data/document.h"
#include "titanium/data/format/tar_members.h"
#include "titanium/data/image/decode.h"
#include "titanium/data/image/image_text.h"

namespace titanium::data {
namespace {

constexpr int64_t kSmall = int64_t{64} << 20;  // bytes that are counted without being asked

void show_image(const Record& record, Inspection::Sample& sample) {
  ImageText found = image_text(record);
  try {
    const ImageSize size = image_size(found.image);
    sample.image = fmt::format("{} {} x {}", name_of(image_format(found.image)), size.width, size.height);
    decode_image(found.image);
  } catch (const ImageError& error) {
    throw BadRecord(refusal(record, found.key, fmt::format("has an image that {}", error.what())));
  }
  sample.text = std::move(found.caption);
}

Inspection::Sample sample_of(const Record& record, const std::string& field) {
  Inspection::Sample sample{.place = record.place()};
  try {
    if (record.block->content == Content::kSample) {
      show_image(record, sample);
      return sample;
    }
    if (has_tokens(record)) {
      sample.tokens = document_tokens(record);
    } else {
      sample.text = document_text(record, field);
    }
  } catch (const BadRecord& error) {
    sample.problem = error.what();
  }
  return sample;
}

// Whether all files are archives and the first sample has a picture.
bool has_images(const std::filesystem::path& path, ReadOptions reading) {
  if (reading.text_field != ReadOptions{}.text_field) return false;
  reading.whole_samples = true;
  RecordSource source(path, {.reading = reading});
  const bool archives =
      std::ranges::all_of(source.files(), [](const SourceFile& file) { return file.format->has_samples(); });
  if (!archives) return false;
  const auto first = source.read(0);
  if (!first) return false;
  const auto parts = sample_parts(first->bytes);
  return std::ranges::any_of(
      parts, [](const SamplePart& part) { return image_format(part.content) != ImageFormat::kUnknown; });
}

// The tokens of all files; none when one of them does not say.
std::optional<int64_t> count_tokens(const std::vector<SourceFile>& files, const ReadOptions& options) {
  int64_t tokens = 0;
  for (const SourceFile& file : files) {
    if (!file.format->is_indexed()) return std::nullopt;
    const auto count = open_blocks(file, {}, options)->tokens();
    if (!count) return std::nullopt;
    tokens += *count;
  }
  return tokens;
}

}  // namespace

Inspection inspect(const std::filesystem::path& path, const InspectionOptions& options) {
  ReadOptions reading = options.reading;
  reading.whole_samples = reading.whole_samples || has_images(path, reading);
  RecordSource source(path, {.reading = reading});
  Inspection found;
  bool counted = true;
  for (const SourceFile& file : source.files()) {
    ++found.files;
    found.bytes += file.size;
    ++found.formats[std::string(file.format->name())];
    counted &= file.format->knows_counts();
  }
  for (int64_t i = 0; i < options.samples; ++i) {
    const auto record = source.read(i);
    if (!record) break;
    found.samples.push_back(sample_of(*record, options.reading.text_field));
  }
  if (counted || options.count_all || found.bytes <= kSmall)
    found.records = source.count_up_to(std::numeric_limits<int64_t>::max());
  found.tokens = count_tokens(source.files(), options.reading);
  return found;
}

}  // namespace titanium::data
