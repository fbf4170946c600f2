// Reads a file forward in blocks of records. A block is the unit that
// RecordSource finds, caches and returns to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace titanium::data {

// The place of a record: record number over the whole data set, and where
// reading can begin to reach it. In files that cannot be entered in the middle
// (compressed, text) only the beginning of the file is such a place.
struct Anchor {
  int64_t record = 0;
  int64_t file = 0;
  int64_t offset = 0;  // in the format's unit: bytes of lines and archives,
                       // groups of rows, documents of tokens
  int64_t line = 1;    // or row, or document: what a message calls the record by

  bool operator==(const Anchor&) const = default;
};

// Records of a file that follow each other: all that begin in [begin, end), counted in the unit of Anchor::offset.
struct FilePart {
  int64_t begin = 0;
  int64_t end = 0;         // 0: the end of the file
  int64_t first_line = 1;  // what a message calls the first record by; 0: not known
  int64_t bytes = 0;       // that reading it takes, about
  int64_t records = -1;    // -1: not known

  bool is_inside(int64_t offset) const { return offset >= begin && (end == 0 || offset <= end); }
};

// Rank `rank` of `ranks` keeps the records r with r mod ranks = rank.
struct Ownership {
  int64_t rank = 0;
  int64_t ranks = 1;

  bool owns(int64_t record) const { return record % ranks == rank; }
};

// What the bytes of a record are.
enum class Content {
  kJson,    // an object with the text in one of its fields
  kText,    // the text itself
  kTokens,  // little-endian integers of Block::token_bytes each
  kSample,  // the members of an archive that have one key, as they stand there: format/tar_members.h
};

// Consecutive records of one file, of which only the owned ones are kept.
struct Block {
  struct Entry {
    size_t begin;
    size_t size;
    int64_t line;
    bool missing = false;  // a null in a column
  };

  Anchor begin;
  Anchor entrance;  // where to begin reading to get to this block again
  int64_t count = 0;
  Content content = Content::kText;
  int64_t token_bytes = 0;
  std::string bytes;  // each record is followed by a zero byte that does not
                      // belong to it
  std::vector<Entry> entries;

  int64_t end() const { return begin.record + count; }
  size_t memory() const { return sizeof(Block) + bytes.capacity() + entries.capacity() * sizeof(Entry); }
};

struct ReadOptions {
  Ownership ownership{};
  int64_t max_record_bytes = int64_t{1} << 28;
  std::string text_field = "text";     // field, column or member that holds the text or the tokens
  std::string token_dtype = "uint16";  // of arrays that do not say it
  int64_t block_records = 256;         // of a block of indexed documents
  int64_t block_bytes = 1 << 20;       // a block is full with as many
  int64_t memory_bytes = 0;            // that a reader may take for reading ahead; 0: as much as is useful
  bool whole_samples = false;          // of archives: all members of a key are one record
};

// Which records a block has depends only on the file and on where reading
// began, never on ownership.
class BlockReader {
 public:
  virtual ~BlockReader() = default;
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // The next block. It may have no records; at_end() tells the end of the file.
  // Throws Error when the file cannot be read, is truncated or damaged, or a
  // record is longer than `max_record_bytes`.
  virtual std::shared_ptr<const Block> next() = 0;

  // Moves towards `record`, which is not before position(), without reading
  // what lies between, where the format has an index. The next block is then
  // one at or before the record, or the empty one at the end of the file.
  virtual void skip_towards(int64_t /*record*/) {}

  // Whether skip_towards gets to `record` from anywhere in the file, backwards
  // too.
  virtual bool covers(int64_t /*record*/) const { return false; }

  // Whether position() is worth remembering: reading can begin there, and to
  // find it again would cost reading.
  virtual bool is_entrance() const { return false; }

  // After a read: a reader that holds much between reads counts it, and gives it back where all readers of the process
  // hold more than `most` bytes and it finds its place again at little cost. See Note [Readers that rest].
  virtual void settle(int64_t /*most*/) {}

  // All tokens of the file, where it holds tokens and says how many.
  virtual std::optional<int64_t> tokens() const { return std::nullopt; }

  bool at_end() const { return at_end_; }
  const Anchor& position() const { return position_; }

 protected:
  explicit BlockReader(const Anchor& start, const ReadOptions& options)
      : start_(start), position_(start), options_(options) {}

  std::shared_ptr<Block> begin_block(Content content, const Anchor& entrance) const;
  // Adds the record at position_ to the block, if it is owned, and goes on to
  // the next one.
  void append(Block& block, std::string_view bytes, bool missing = false);
  // Blocks end at 1,024 records or ReadOptions::block_bytes, whichever is first.
  bool is_full(const Block& block, int64_t bytes_read) const;

  const Anchor start_;
  Anchor position_;
  const ReadOptions options_;
  bool at_end_ = false;
};

}  // namespace titanium::data
