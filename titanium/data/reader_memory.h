// What open readers hold between reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace titanium::data {

// Note [Readers that rest]
// A reader of columns holds a decoded page or batch between reads, and a mix of 100 sources, or 64 lanes, has as many
// of them. Their sum is counted for the whole process, which is one rank. A reader that is above the limit after a
// read rests: it lets go of all but the place where its page or batch begins, and decodes that once more with the next
// read. Whoever has read last rests, so that readers take turns little: those that were there first stay awake, which
// for sources that are read in turns is better than to keep the ones that were used last.

// The share of one reader in what all readers of this process hold together.
class ReaderMemory {
 public:
  ReaderMemory() = default;
  ReaderMemory(const ReaderMemory&) = delete;
  ReaderMemory& operator=(const ReaderMemory&) = delete;
  ~ReaderMemory() { set(0); }

  void set(int64_t bytes) {
    total_ += bytes - bytes_;
    bytes_ = bytes;
  }

  static bool exceeds(int64_t bytes) { return total_ > bytes; }

 private:
  inline static std::atomic<int64_t> total_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace titanium::data
