// Tokenises a data set once, so that runs need neither its texts nor the tokenizer.
#pragma once

#include "titanium/data/corpus.h"

namespace titanium::data {

struct Preparation {
  std::filesystem::path path;
  std::filesystem::path out;  // a folder
  ReadOptions reading{};
  bool skip_bad_records = false;
  std::string tokenizer;   // tells whether shards that are there belong to this preparation
  int64_t vocab_size = 0;  // up to 65,536 tokens take two bytes each, else four
  int64_t threads = 1;
  int64_t shard_records = 16384;
};

struct PreparedCounts {
  int64_t shards = 0;
  int64_t kept_shards = 0;  // of them, those that were there already
  int64_t documents = 0;    // of the others
  int64_t tokens = 0;
  int64_t bad_records = 0;
};

// Note [Parts of a preparation]
// The data is cut into parts of 1/256 of its bytes, from 1 to 64 MiB: blocks of Note [Lanes] that follow each other, so
// that each is read from its beginning without those before it. A thread reads and tokenises a part of its own; where
// there are no more, as of one large compressed file, threads share those that are left. Part 3 becomes the shards
// 00003-00000.ds, 00003-00001.ds, ... of `shard_records` records each. So which document is in which shard, and every
// byte of it, follows from the data and the options alone, and not from the number of threads.
//
// Writes the documents in their order as datatrove's files <part>-<shard>.ds and .ds.index. A shard appears whole or
// not at all, and one that is there is not made again; parts that have ended are listed in a hidden file and not read
// again: so a preparation that was stopped goes on. `progress` gets bytes of the data that are done, an estimate inside
// a part, and their total, from any thread, one at a time; the first call comes before anything is read. Throws
// UsageError when `out` holds shards of other data or another tokenizer, Error as RecordSource does and for a bad
// record.
PreparedCounts prepare(const Preparation& preparation, const Encoder& encoder,
                       const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace titanium::data
