// Which files make up a data set, and in which order.
#pragma once

#include <string>
#include <vector>

#include "titanium/data/byte_stream.h"

namespace titanium::data {

enum class RecordFormat {
  kJsonLines,  // one JSON object per line
  kText,       // the whole file is one document
};

struct SourceFile {
  std::filesystem::path path;
  std::string name;  // relative to the data set's path; the order of a folder
  RecordFormat format = RecordFormat::kJsonLines;
  Compression compression = Compression::kNone;
  int64_t size = 0;  // bytes on disk

  bool seekable() const { return format == RecordFormat::kJsonLines && compression == Compression::kNone; }
};

// `path` is a file or a folder, here or at an address (remote/byte_source.h). Of a folder, all .jsonl, .json, .ndjson
// (JSON lines) and .txt files, each also with .gz or .zst at the end, in its whole depth, sorted by relative name;
// names that begin with a dot are left out. A single file of another name is taken as JSON lines. Every file is checked
// to be readable; none is opened. Throws Error when the path is missing, a file cannot be read, a folder has no data
// files, or a file is empty; with `allow_empty_files` an empty file gets a warning and is left out.
std::vector<SourceFile> find_source_files(const std::filesystem::path& path, bool allow_empty_files);

// 16 hex digits from names and sizes: tells whether a saved position belongs to these files.
std::string fingerprint(const std::vector<SourceFile>& files);

}  // namespace titanium::data
