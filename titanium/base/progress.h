// Progress of long work, on stderr: a bar on a terminal, else a plain line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace titanium {

// One piece of work of a known size. Not thread-safe. Work that is done within a second is not worth a word; after that
// the class writes at most ten times a second on a terminal, else a line for every tenth of the work. The last state is
// written then, and an unfinished bar is ended by the destructor.
class Progress {
 public:
  Progress(std::string label, int64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // `done` of the total, at least as much as before.
  void update(int64_t done);

 private:
  void write_bar() const;
  void write_line() const;

  std::string label_;
  int64_t total_;
  int64_t done_ = 0;
  bool terminal_;
  int64_t written_tenths_ = -1;
  std::chrono::steady_clock::time_point next_write_;  // first a second after the construction
  bool bar_open_ = false;
};

}  // namespace titanium
