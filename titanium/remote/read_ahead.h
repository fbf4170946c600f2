// A source from front to back, with several reads under way at a time.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <vector>

#include "titanium/remote/byte_source.h"

namespace titanium::remote {

// For one thread. Pieces of 4 MiB are read ahead by threads of their own. Their number, up to 8, grows each time that
// the reader has to wait, so that it settles where bandwidth times latency is covered and a fast disk or a slow reader
// costs little.
class ReadAhead {
 public:
  ReadAhead(std::unique_ptr<ByteSource> source, int64_t offset);

  // Fills up to `size` bytes and returns how many; 0 only at the end. Throws as ByteSource::read does.
  size_t read(char* out, size_t size);

 private:
  void start_reads();

  std::shared_ptr<const ByteSource> source_;
  int64_t next_;  // where the next read begins
  size_t depth_ = 2;
  std::deque<std::future<std::vector<char>>> under_way_;
  std::vector<char> piece_;
  size_t used_ = 0;  // of piece_
};

}  // namespace titanium::remote
