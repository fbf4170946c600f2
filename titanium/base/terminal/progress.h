// Progress of long work, on stderr: a bar on a terminal, else a plain line now and then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace titanium {

enum class ProgressUnit { kItems, kBytes };

// Where progress is shown; tests bring their own.
struct ProgressOutput {
  bool terminal = false;
  double line_seconds = 10;       // between lines where there is no terminal
  std::function<double()> clock;  // seconds, from any origin
  std::function<void(std::string_view text)> write;
};

// One piece of work with its rate and the time that is left. Work that is done within a second is not worth a word;
// after that the class writes at most ten times a second on a terminal, else a line every ten seconds, or as often as
// TITANIUM_PROGRESS_SECONDS says. The last state is written if anything was, and an unfinished bar is ended by the
// destructor. Writes nothing after silence_progress() (base/terminal/terminal.h). From any thread.
class Progress {
 public:
  // The total of work whose size is not known before it is done: then rate and time so far are shown.
  static constexpr int64_t kUnknownTotal = -1;

  Progress(std::string label, int64_t total, ProgressUnit unit = ProgressUnit::kItems);
  Progress(std::string label, int64_t total, ProgressUnit unit, ProgressOutput output);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // `done` of the total, at least as much as before.
  void update(int64_t done);
  // `amount` more is done.
  void add(int64_t amount);

 private:
  std::string amount(int64_t value) const;
  // ", 1.2 GB/s, 3 s left", with what is known.
  std::string rate(double now, const char* separator) const;
  bool knows_total() const { return total_ != kUnknownTotal; }
  void show(bool last);
  void write_state(double now);
  void write_bar(double now) const;
  void write_line(double now) const;

  std::string label_;
  int64_t total_;
  ProgressUnit unit_;
  ProgressOutput output_;
  std::atomic<int64_t> reached_ = 0;
  std::mutex mutex_;  // guards what follows
  int64_t done_ = 0;  // what was last looked at
  double started_;
  double next_write_;
  bool written_ = false;
  bool finished_ = false;
  bool bar_open_ = false;
};

}  // namespace titanium
