// A source from front to back, with several reads under way at a time.
#pragma once

#include <deque>
#include <future>
#include <limits>
#include <memory>
#include <vector>

#include "titanium/remote/reading/byte_source.h"

namespace titanium::remote {

// Where reading begins, and what may be read before it is asked for.
struct ReadAheadPlace {
  int64_t offset = 0;
  int64_t end = std::numeric_limits<int64_t>::max();  // what comes after it is read only when it is asked for
  int64_t memory_bytes = 0;                           // that reading ahead may take; 0: as much as is useful
};

// For one thread. Pieces of up to 4 MiB are read ahead by threads of their own. Their number, up to 8, grows each time
// that the reader has to wait, so that it settles where bandwidth times latency is covered and a fast disk or a slow
// reader costs little. With less memory than that pieces are a quarter of it, but at least 64 KiB.
class ReadAhead {
 public:
  ReadAhead(std::unique_ptr<ByteSource> source, const ReadAheadPlace& place);

  // Fills up to `size` bytes and returns how many; 0 only at the end. Throws as ByteSource::read does.
  size_t read(char* out, size_t size);

 private:
  void start_read(int64_t limit);
  void start_reads();

  std::shared_ptr<const ByteSource> source_;
  int64_t next_;  // where the next read begins
  int64_t end_;
  int64_t piece_bytes_;
  int64_t behind_end_;
  size_t deepest_;
  size_t depth_ = 2;
  std::deque<std::future<std::vector<char>>> under_way_;
  std::vector<char> piece_;
  size_t used_ = 0;  // of piece_
};

}  // namespace titanium::remote
