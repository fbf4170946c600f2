// The records of a data set by number: record 0, 1, 2, ... over all files in
// order, blank lines not counted.
//
// Nothing is scanned in advance. Files are read forward in blocks
// (block_reader.h) as far as records are asked for, and the beginning of every
// block is remembered, so that a plain file is entered where a record is; a 300
// GB file needs about 25 MB for that. The records of recent blocks are kept in
// a cache of fixed size, of which only the owned records take room: readers at
// different places of the same region share one pass over the data.
//
// Files with an index are entered at any record; of those that are passed only
// the index is read. Compressed files cannot be entered in the middle. They are
// decoded by a few readers that only move forward: a record that is neither in
// the cache nor ahead of a reader opens another one at the beginning of its
// file. So memory is bounded (cache + the largest number of decoders) whatever
// the readers do; what grows, when readers drift farther apart than the cache
// reaches, is the number of passes over the same file.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <stop_token>

#include "titanium/data/source_files.h"

namespace titanium::data {

// Thrown by RecordSource::read when its stop token asks for it.
struct Cancelled {};

// One record as it stands in the file; `bytes` lives as long as `block`.
struct Record {
  std::shared_ptr<const Block> block;
  std::string_view bytes;
  const SourceFile* file = nullptr;
  int64_t line = 1;  // or row, or document
  bool missing = false;

  std::string place() const { return place_of(*file, line); }  // for messages

  // Where to begin reading to find this record again.
  const Anchor& entrance() const { return block->entrance; }
};

struct RecordSourceOptions {
  ReadOptions reading{};
  bool allow_empty_files = false;
  size_t cache_bytes = size_t{256} << 20;
  size_t max_readers = 8;
  int64_t held_bytes = int64_t{64} << 20;  // that readers of all sources may hold between reads, if they can help it
  bool forgets_places = false;             // keeps the beginnings of blocks only of the files that are being read
};

// Thread-safe. Records that have been returned stay valid after the source is
// gone, except for `file`.
class RecordSource {
 public:
  // Throws as find_source_files does.
  RecordSource(const std::filesystem::path& path, const RecordSourceOptions& options);
  // Reads the parts of these files, in this order.
  RecordSource(std::vector<SourceFile> files, const RecordSourceOptions& options);

  // An owned record; nothing after the last one. Throws Error as BlockReader
  // does, Cancelled when `stop` is requested.
  std::optional<Record> read(int64_t record, const std::stop_token& stop = {});

  // The number of records, but at most `limit`: only as much is scanned as that
  // needs.
  int64_t count_up_to(int64_t limit);

  // Makes reading begin at a place that an earlier run has found. Throws Error
  // if it does not fit the files.
  void add_anchor(const Anchor& anchor);

  // Lets the cache have this many bytes from the next read on.
  void set_cache_bytes(size_t bytes) { cache_bytes_ = bytes; }

  // The last known place at or before a record where reading can begin.
  Anchor anchor_before(int64_t record);

  const std::vector<SourceFile>& files() const { return files_; }

 private:
  struct Cached {
    std::shared_ptr<const Block> block;
    std::list<int64_t>::iterator use;
  };

  std::shared_ptr<const Block> find_block(int64_t record, const std::stop_token& stop);
  std::shared_ptr<const Block> find_cached(int64_t record);
  BlockReader& reader_towards(int64_t record);
  void advance(BlockReader& reader);
  const Anchor& place_before(int64_t record) const;
  void remember(const Anchor& anchor);
  void forget_before(int64_t file);
  void cache(std::shared_ptr<const Block> block);
  void trim_cache();

  RecordSourceOptions options_;
  const std::vector<SourceFile> files_;
  std::atomic<size_t> cache_bytes_;

  std::mutex mutex_;                                 // guards all below
  std::map<int64_t, Anchor> beginnings_;             // of files, by their first record
  std::map<int64_t, Anchor> places_;                 // inside files, likewise
  std::optional<int64_t> total_;                     // known once the last file has been read to its end
  std::list<std::unique_ptr<BlockReader>> readers_;  // most recently used first
  std::map<int64_t, Cached> cache_;                  // by the first record of the block
  std::list<int64_t> uses_;                          // most recently used first
  size_t cached_bytes_ = 0;
};

}  // namespace titanium::data
