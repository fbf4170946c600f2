#include "titanium/data/format/formats.h"

#include "titanium/base/error.h"
#include "titanium/data/source_files.h"
#include "titanium/remote/reading/windowed_bytes.h"

namespace titanium::data {
namespace {

using Format = const SourceFormat& (*)();

// The first that knows a name or a content has it.
constexpr Format kFormats[] = {json_lines,      text_files,   parquet_files, arrow_files, megatron_files,
                               datatrove_files, token_arrays, mds_shards,    tar_archives};

constexpr size_t kHeadBytes = 512;

}  // namespace

const SourceFormat* format_by_name(std::string_view name) {
  for (const Format format : kFormats) {
    if (format().has_name(name)) return &format();
  }
  return nullptr;
}

const SourceFormat* format_by_content(std::string_view head) {
  for (const Format format : kFormats) {
    if (format().has_content(head)) return &format();
  }
  return nullptr;
}

const SourceFormat& json_lines_format() { return json_lines(); }

int64_t SourceFormat::reader_weight(const SourceFile& file) const {
  return file.compression == Compression::kNone ? 1 : 4;  // the window of a decoder
}

int64_t largest_window(const ReadOptions& options) {
  constexpr int64_t kSmallest = 64 << 10, kWindowsOfAReader = 8;
  if (options.memory_bytes == 0) return remote::WindowedBytes::kLargest;
  return std::clamp(options.memory_bytes / kWindowsOfAReader, kSmallest, remote::WindowedBytes::kLargest);
}

std::unique_ptr<BlockReader> open_blocks(const SourceFile& file, const Anchor& start, const ReadOptions& options) {
  if (start.offset == 0 && file.part.begin == 0 && file.compression == Compression::kNone) {
    const std::string head = read_head(file.path, kHeadBytes);
    const Compression compression = compression_by_content(head);
    TI_CHECK(compression == Compression::kNone,
             "Data file {} holds {} data, which its name does not say. Rename it to end in {}.", file.path.string(),
             compression == Compression::kGzip ? "gzip" : "zstd", compression == Compression::kGzip ? ".gz" : ".zst");
    const SourceFormat* found = format_by_content(head);
    TI_CHECK(found == nullptr || found == file.format,
             "Data file {} is read as {} because of its name, but its content is {}. Rename it.", file.path.string(),
             file.format->name(), found->name());
  }
  return file.format->open(file, start, options);
}

}  // namespace titanium::data
