// A source for readers that jump to a place and go on from there, as those of columns and of indexes do.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "titanium/remote/reading/read_ahead.h"

namespace titanium::remote {

// Note [Windows]
// A read at a place where nobody was gets a window of 64 KiB there, or as much as was asked for. A read that goes on at
// the end of a window gets one that is twice as long, up to `largest` (4 MiB), and from the second one on the next
// window is read while this one is used, and of the largest ones as many as PiecesAhead finds useful, up to 8 (4 of
// smaller ones): random access costs little more than what it wants, and forward reading comes at the speed of the
// link. The four windows that were used last are kept, because an index and what it points to are
// read in turns. Reads of more than the largest window go past the windows, up to 8 requests at a time. Thread-safe;
// one read at a time.
class WindowedBytes final : public ByteSource {
 public:
  static constexpr int64_t kLargest = 4 << 20;

  explicit WindowedBytes(std::unique_ptr<ByteSource> source, int64_t largest = kLargest)
      : source_(std::move(source)), largest_(largest) {}

  int64_t size() const override { return source_->size(); }
  void read(int64_t offset, std::span<char> out) const override;

  // Bytes [begin, end) will be read from front to back, and those after them will not be: windows there are as large
  // as they get from the beginning, and end with the range. The last 16 such ranges are remembered.
  void expect(int64_t begin, int64_t end) const;

 private:
  struct Window {
    int64_t begin = 0;
    PiecesAhead pieces;  // it and those that follow
    std::vector<char> bytes{};

    int64_t end() const { return begin + static_cast<int64_t>(bytes.size()); }
  };

  Window& window_at(int64_t offset, int64_t wanted) const;
  void read_on(Window& window) const;
  int64_t limit_of(int64_t offset, bool& expected) const;
  void read_around(int64_t offset, std::span<char> out) const;

  const std::shared_ptr<const ByteSource> source_;
  const int64_t largest_;
  mutable std::mutex mutex_;
  mutable std::list<Window> windows_;  // most recently used first
  mutable std::list<std::pair<int64_t, int64_t>> expected_;
};

}  // namespace titanium::remote
