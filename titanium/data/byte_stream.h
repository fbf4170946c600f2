// The bytes of a file from front to back, plain or decompressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "titanium/remote/reading/read_ahead.h"

namespace titanium::data {

enum class Compression { kNone, kGzip, kZstd };

// What the first bytes of a file show.
Compression compression_by_content(std::string_view head);

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills up to `size` bytes of `out` and returns how many; 0 only at the end. Throws Error when the file cannot be
  // read, is truncated or is damaged.
  virtual size_t read(char* out, size_t size) = 0;

  // Of a compressed file, how many bytes of it have been decoded; 0 of others.
  virtual int64_t decoded_bytes() const { return 0; }
};

// `path` may be an address (remote/reading/byte_source.h). Begins at byte `place.offset`, which must be 0 for
// compressed files; of an address, no more is read ahead than `place` allows. A file of several gzip members or zstd
// frames is read as their concatenation. Throws Error when the file cannot be opened.
std::unique_ptr<ByteStream> open_byte_stream(const std::filesystem::path& path, Compression compression,
                                             const remote::ReadAheadPlace& place = {});

// The first `size` bytes of a file as they are stored, or all of a shorter one.
std::string read_head(const std::filesystem::path& path, size_t size);

}  // namespace titanium::data
