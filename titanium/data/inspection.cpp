#include "titanium/data/inspection.h"

#include <limits>

#include "titanium/data/document.h"

namespace titanium::data {
namespace {

constexpr int64_t kSmall = int64_t{64} << 20;  // bytes that are counted without being asked

Inspection::Sample sample_of(const Record& record, const std::string& field) {
  Inspection::Sample sample{.place = fmt::format("{}:{}", record.file->path.string(), record.line)};
  try {
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
  RecordSource source(path, {.reading = options.reading});
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
