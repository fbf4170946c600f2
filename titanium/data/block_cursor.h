// Reads a file forward in blocks of records. A block is the unit that RecordSource finds, caches and returns to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/data/source_files.h"

namespace titanium::data {

// The place of a record: record number over the whole data set, and where reading can begin to reach it. In files that
// cannot be entered in the middle (compressed, text) only the beginning of the file is such a place.
struct Anchor {
  int64_t record = 0;
  int64_t file = 0;
  int64_t offset = 0;  // bytes from the (decompressed) beginning of the file
  int64_t line = 1;

  bool operator==(const Anchor&) const = default;
};

// Rank `rank` of `ranks` keeps the records r with r mod ranks = rank.
struct Ownership {
  int64_t rank = 0;
  int64_t ranks = 1;

  bool owns(int64_t record) const { return record % ranks == rank; }
};

// Consecutive records of one file, of which only the owned ones are kept.
struct Block {
  struct Entry {
    size_t begin;
    size_t size;
    int64_t line;
  };

  Anchor begin;
  Anchor entrance;  // where to begin reading to get to this block again
  int64_t count = 0;
  std::string bytes;
  std::vector<Entry> entries;

  int64_t end() const { return begin.record + count; }
  size_t memory() const { return sizeof(Block) + bytes.capacity() + entries.capacity() * sizeof(Entry); }
};

// Where blocks end depends only on the file, never on ownership: at 1,024 records or 1 MiB, whichever is first.
class BlockCursor {
 public:
  // `start` is the beginning of the file or, in a seekable file, of one of its blocks. `file` must outlive the cursor.
  BlockCursor(const SourceFile& file, const Anchor& start, Ownership ownership, int64_t max_record_bytes);

  // The next block. May have no records (blank lines); at_end() tells the end of the file. Throws Error as ByteStream
  // does, and when a record is longer than `max_record_bytes`.
  std::shared_ptr<const Block> next();

  bool at_end() const { return at_end_; }
  const Anchor& position() const { return position_; }

 private:
  std::optional<std::string_view> read_line();
  bool refill();

  const SourceFile& file_;
  Ownership ownership_;
  int64_t max_record_bytes_;
  std::unique_ptr<ByteStream> stream_;
  Anchor start_;
  Anchor position_;
  bool at_end_ = false;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // unread bytes are [begin_, end_) of buffer_
  size_t end_ = 0;
};

}  // namespace titanium::data
