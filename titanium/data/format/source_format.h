// The kinds of files that training data comes in. A format is a class; format/formats.cpp has the list.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "titanium/data/block_reader.h"

namespace titanium::data {

struct SourceFile;

class SourceFormat {
 public:
  virtual ~SourceFormat() = default;

  virtual std::string_view name() const = 0;  // as in "a file of Parquet"
  // Whether files of this name, without the ending of a compression, are of this format.
  virtual bool has_name(std::string_view name) const = 0;
  // Whether a file that begins with `head` (up to 512 bytes) can only be of this format.
  virtual bool has_content(std::string_view /*head*/) const { return false; }
  virtual bool may_be_compressed() const { return false; }
  // Whether a record is found by its number without reading those before it.
  virtual bool is_indexed() const { return false; }
  // Whether no record is a text, so that no tokenizer is needed.
  virtual bool has_only_tokens() const { return false; }
  // Whether records can be whole samples of several parts (ReadOptions::whole_samples).
  virtual bool has_samples() const { return false; }
  // Whether the number of records is known without reading them.
  virtual bool knows_counts() const { return is_indexed(); }
  // A second file that belongs to `path`: tokens to an index, or an index to tokens.
  virtual std::optional<std::filesystem::path> companion(const std::filesystem::path& /*path*/) const {
    return std::nullopt;
  }
  // The file as consecutive parts of about `bytes` each (at least one record or group of them), every one of which is
  // read without reading those before it; nothing where that cannot be. Throws Error as open does.
  virtual std::optional<std::vector<FilePart>> parts(const SourceFile& /*file*/, int64_t /*bytes*/,
                                                     const ReadOptions& /*options*/) const {
    return std::nullopt;
  }
  // Whether the file is opened to find its parts.
  virtual bool opens_for_parts() const { return true; }
  // What FilePart::begin counts, where lines are counted from there on.
  virtual std::string_view unit() const { return "byte"; }
  // What a reader that stays open takes, in units of one that reads plain lines.
  virtual int64_t reader_weight(const SourceFile& file) const;
  // Whether a position that was saved inside the file (its offset is not 0) is one.
  virtual bool is_place(const SourceFile& file, const Anchor& anchor) const = 0;

  // `start` is the beginning of the file or a place where a reader was an entrance. `file` must outlive the reader.
  // Throws Error when the file cannot be opened or is not of this format.
  virtual std::unique_ptr<BlockReader> open(const SourceFile& file, const Anchor& start,
                                            const ReadOptions& options) const = 0;
};

// The formats that a name or a beginning tells; null: none does.
const SourceFormat* format_by_name(std::string_view name);
const SourceFormat* format_by_content(std::string_view head);
const SourceFormat& json_lines_format();

// The largest window (remote/reading/windowed_bytes.h) that a reader may use.
int64_t largest_window(const ReadOptions& options);

// Opens `file` in its format after a look at its content: throws Error when that shows another format or compression.
std::unique_ptr<BlockReader> open_blocks(const SourceFile& file, const Anchor& start, const ReadOptions& options);

}  // namespace titanium::data
