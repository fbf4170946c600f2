// Reads stretches of files: block by block, with several threads, checking what it reads.
#pragma once

#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "titanium/checkpoint/io/file_sums.h"

namespace titanium::checkpoint {

// Bytes [begin, end) of a file that are to be read.
struct Stretch {
  std::string file;  // its name in the folder
  std::string what;  // that lies there, for messages; may be empty
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t unit = 1;            // size of an element: `use` gets whole ones
  std::optional<uint32_t> crc;  // of all the bytes; checked when the file has no sum
  // Gets the bytes from begin + position on, which are there during the call; called on any thread, in any order. The
  // calls of a stretch cover it once. May be empty.
  std::function<void(uint64_t position, std::span<const std::byte> bytes)> use;
};

// What is wrong with a file, in one sentence.
struct FileProblem {
  std::string file;
  std::string message;
};

struct StretchOptions {
  int threads = 0;          // 0: chosen
  bool keep_going = false;  // else it stops at the first problem
  // With a stream, `use` is called with that stream as the current one and with bytes in pinned memory, and work that
  // it queues there may read them after the call.
  std::optional<c10::Stream> stream;
};

// The folder may be at an address. Reads past the page cache where the file system allows it, in blocks of `kSumBlock`
// bytes: only those of which something is needed, whole ones where the file has a sum, and each once. Takes a few
// blocks of memory per thread. Bytes whose checksum differs are not handed on. Returns when all work on the stream is
// done. Rethrows what `use` throws.
std::vector<FileProblem> read_stretches(const std::filesystem::path& folder, std::span<const Stretch> stretches,
                                        const std::map<std::string, FileSum>& sums, const StretchOptions& options);

}  // namespace titanium::checkpoint
