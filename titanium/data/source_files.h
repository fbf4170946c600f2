// Which files make up a data set, and in which order.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "titanium/data/byte_stream.h"
#include "titanium/data/format/source_format.h"
#include "titanium/remote/reading/byte_source.h"

namespace titanium::data {

struct SourceFile {
  std::filesystem::path path;
  std::string name;  // relative to the data set's path; the order of a folder
  const SourceFormat* format = &json_lines_format();
  Compression compression = Compression::kNone;
  int64_t size = 0;  // bytes on disk, with those of its companion
  FilePart part{};   // that is read
};

// What a message calls a record by: path and line, or row, or document.
std::string place_of(const SourceFile& file, int64_t line);

// `path` is a file or a folder, here or at an address (remote/reading/byte_source.h).
// A folder stands for all files in its whole depth whose names say that they are of a known format (format/), some with
// .gz or .zst at the end, sorted by relative name; left out are names that begin with a dot, companions of other files,
// and what Hugging Face's datasets and MosaicML's shards have beside their data. The format of a single file with an
// unknown name is told by its content, and is JSON lines when that tells nothing; it may also be named without the .idx
// or .ds of its format. Every file is checked to be readable; those of a folder are not opened. Throws Error when the
// path is missing, a file or its companion cannot be read, a folder has no data files, or a file is empty; with
// `allow_empty_files` an empty file gets a warning and is left out.
std::vector<SourceFile> find_source_files(const std::filesystem::path& path, bool allow_empty_files);

// What listing an address has come to: files, or what it has thrown.
struct ListedAddress {
  std::vector<remote::RemoteFile> files{};
  std::exception_ptr failure{};
};

// An address need not be listed any more, because one rank has done that for all: find_source_files takes this instead.
// To be called before threads begin.
void know_listing(const std::string& address, ListedAddress listed);

// 16 hex digits from names and sizes: tells whether a saved position belongs to these files.
std::string fingerprint(const std::vector<SourceFile>& files);

}  // namespace titanium::data
