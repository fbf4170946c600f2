// A source from front to back, with several reads under way at a time.
#pragma once

#include <deque>
#include <future>
#include <limits>
#include <memory>
#include <vector>

#include "titanium/remote/reading/byte_source.h"

namespace titanium::remote {

// For one thread. Pieces are read ahead by threads of their own. Their number grows each time that the reader has to
// wait, so that it settles where bandwidth times latency is covered and a fast disk or a slow reader costs little.
class PiecesAhead {
 public:
  struct Sizes {
    int64_t first = 0;    // bytes; each piece after it has twice as many
    int64_t largest = 0;  // up to this
    size_t depth = 0;     // pieces that are under way at first; 0: only the one that is waited for
    size_t deepest = 1;   // that are ever under way
  };
  PiecesAhead(std::shared_ptr<const ByteSource> source, int64_t begin, const Sizes& sizes)
      : source_(std::move(source)), next_(begin), sizes_(sizes), bytes_(sizes.first), depth_(sizes.depth) {}

  // The piece after the last one. It ends at `limit` at the latest, as does what is read ahead; empty when the last
  // one did. Throws as ByteSource::read does, and then begins with the lost piece again.
  std::vector<char> next(int64_t limit);

  int64_t read_up_to() const { return next_; }  // or being read

 private:
  void start(int64_t limit);

  struct Piece {
    int64_t begin;
    std::future<std::vector<char>> bytes;
  };

  std::shared_ptr<const ByteSource> source_;
  int64_t next_;  // where the next read begins
  Sizes sizes_;
  int64_t bytes_;  // of the next piece
  size_t depth_;
  bool is_first_ = true;
  std::deque<Piece> under_way_;
};

// Where reading begins, and what may be read before it is asked for.
struct ReadAheadPlace {
  int64_t offset = 0;
  int64_t end = std::numeric_limits<int64_t>::max();  // what comes after it is read only when it is asked for
  int64_t memory_bytes = 0;                           // that reading ahead may take; 0: as much as is useful
};

// For one thread. Pieces have 4 MiB, up to 8 are read at a time; with less memory than that they are a quarter of it,
// but at least 64 KiB.
class ReadAhead {
 public:
  ReadAhead(std::unique_ptr<ByteSource> source, const ReadAheadPlace& place);

  // Fills up to `size` bytes and returns how many; 0 only at the end. Throws as ByteSource::read does.
  size_t read(char* out, size_t size);

 private:
  void next_piece();

  int64_t size_;  // of the source
  int64_t end_;
  int64_t piece_bytes_;
  int64_t behind_end_;
  PiecesAhead pieces_;
  std::vector<char> piece_;
  size_t used_ = 0;  // of piece_
};

}  // namespace titanium::remote
