// How the records of a data set are dealt to its streams, so that a rank reads its share of the bytes.
//
// Note [Lanes]
// By records, every rank reads past the records of others. By blocks, it does not: the files are cut into blocks (runs
// of row groups, byte ranges of lines, runs of indexed documents, whole files), and each block is dealt as a
// whole to one of L lanes. A lane is a data set of its own: the records of its blocks, one block after the other, with
// numbers from 0 on. Record d of the data set is then record d div L of lane d mod L, and all else is as in Note
// [Canonical streams]: record d belongs to stream d mod S. L divides S, so stream s reads from lane s mod L alone, and
// rank r of R from the lanes l with l = r modulo the greatest common divisor of L and R: 1 / R of the blocks where R
// divides L. By records there is one lane, which holds all files.
//
// L and the size of blocks are fixed when a run starts, follow from the files and options alone, and are saved with its
// positions. Blocks are dealt in their order to the lane with the fewest bytes so far, so two lanes differ by no more
// than one block; L is so small that a block is at most a quarter of a lane. With a shuffle, every pass deals the
// blocks in another order.
#pragma once

#include "titanium/data/source_files.h"

namespace titanium::data {

// The largest number up to `limit`, or 1, that divides `number`.
int64_t largest_divisor_up_to(int64_t number, int64_t limit);

// What is saved of it.
struct Striping {
  int64_t lanes = 1;        // 1: by records
  int64_t block_bytes = 0;  // of blocks inside files; 0: blocks are whole files

  bool by_blocks() const { return lanes > 1; }
  bool operator==(const Striping&) const = default;
};

// As in "dealt by records".
std::string name_of(const Striping& striping);

enum class StripingChoice {
  kAuto,    // by blocks where there is much data that can be skipped
  kBlocks,  // by blocks, also where there is little
  kRecords,
};
// The choice that training.data_striping names.
StripingChoice striping_choice(std::string_view option);

// One block: a part of the file with this number.
struct FileBlock {
  int64_t file = 0;
  FilePart part{};
};

// The blocks that a striping cuts the files into. Opens files of formats that need it, 16 at a time.
std::vector<FileBlock> find_blocks(const std::vector<SourceFile>& files, int64_t block_bytes,
                                   const ReadOptions& reading);

struct StripingLimits {
  StripingChoice choice = StripingChoice::kAuto;
  int64_t streams = 256;
  int64_t lanes = 256;      // the most, for readers that take as little as those of plain lines
  int64_t block_bytes = 0;  // of blocks inside files; 0: chosen
};

// The files, cut and dealt.
struct StripedFiles {
  Striping striping{};
  std::vector<FileBlock> blocks{};
};

// The striping with the most lanes. Whole files where these are enough; else the files are cut, and for that those of
// some formats opened, unless they are more than 1,024. One lane where there is too little data, or `choice` is
// records.
StripedFiles choose_striping(const std::vector<SourceFile>& files, const StripingLimits& limits,
                             const ReadOptions& reading);

// Whether the data has about 16 records for each stream, and every stream of every lane will have some. Blocks that all
// say how many records they have are counted, as deal_blocks deals them in the first pass of a shuffle with `key` or
// without one. Of others, those that begin before `place`, where as many records have been read as there are streams,
// must be a small part of the data.
bool has_many_records(const StripedFiles& striped, int64_t streams, std::optional<uint64_t> key, const Anchor& place);

// The blocks of each lane, as places in `blocks`, in the order in which they are read. `key` chooses an order of the
// blocks; without it they have their own.
std::vector<std::vector<int64_t>> deal_blocks(const std::vector<FileBlock>& blocks, int64_t lanes,
                                              std::optional<uint64_t> key);

// The key of one pass of a shuffle with `key`: every pass deals the blocks in another order. None without a shuffle.
std::optional<uint64_t> key_of_pass(std::optional<uint64_t> key, int64_t pass);

// What the ranks of a run will read of a data set in one epoch.
struct ReadingPlan {
  Striping striping{};
  int64_t blocks = 0;       // by blocks
  int64_t bytes = 0;        // of all files, or of the column that is read
  int64_t least_bytes = 0;  // of a rank
  int64_t most_bytes = 0;
};

// As in "1,024 blocks in 64 lanes, each of 8 ranks reads 12 to 13 of 96 bytes in an epoch".
std::string describe(const ReadingPlan& plan, int64_t ranks);

}  // namespace titanium::data
