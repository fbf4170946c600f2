// What tells where the bytes of a tensor lie in torch's archive of it, of a file at an address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "titanium/remote/reading/byte_source.h"

namespace titanium::checkpoint {

// An archive of which 16 KiB at each end are fetched, and a small one wholly. torch writes the pickle in front of the
// bytes of the tensor and the directory behind them, so that is all that parsing looks at; what lies between is zero
// here and takes no memory.
class ArchiveEdges {
 public:
  // Bytes [offset, offset + length) of the file. Throws Error as ByteSource::read does.
  ArchiveEdges(const remote::ByteSource& file, int64_t offset, int64_t length);
  ~ArchiveEdges();
  ArchiveEdges(const ArchiveEdges&) = delete;
  ArchiveEdges& operator=(const ArchiveEdges&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace titanium::checkpoint
