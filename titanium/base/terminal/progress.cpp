#include "titanium/base/terminal/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "titanium/base/terminal/terminal.h"
#include "titanium/base/text/readable.h"
#include "titanium/base/text/thousands.h"

namespace titanium {
namespace {

constexpr int kBarWidth = 16;  // with label, rate and time in 80 columns
constexpr double kSilence = 1, kBarInterval = 0.1, kLineInterval = 10;

double line_seconds() {
  const char* text = std::getenv("TITANIUM_PROGRESS_SECONDS");
  char* end = nullptr;
  const double value = text == nullptr ? 0 : std::strtod(text, &end);
  return end != text && end != nullptr && *end == '\0' && value >= 0 ? value : kLineInterval;
}

ProgressOutput to_stderr() {
  return {.terminal = ::isatty(STDERR_FILENO) == 1,
          .line_seconds = line_seconds(),
          .clock =
              [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); },
          .write =
              [](std::string_view text) {
                std::fwrite(text.data(), 1, text.size(), stderr);
                std::fflush(stderr);
              }};
}

}  // namespace

Progress::Progress(std::string label, int64_t total, ProgressUnit unit)
    : Progress(std::move(label), total, unit, to_stderr()) {}

Progress::Progress(std::string label, int64_t total, ProgressUnit unit, ProgressOutput output)
    : label_(std::move(label)),
      total_(total == kUnknownTotal ? total : std::max<int64_t>(total, 1)),
      unit_(unit),
      output_(std::move(output)),
      started_(output_.clock()),
      next_write_(started_ + (output_.terminal ? kSilence : output_.line_seconds)) {}

Progress::~Progress() {
  if (written_ && !knows_total() && progress_is_wanted()) {
    done_ = reached_;
    write_state(output_.clock());
  }
  if (bar_open_) output_.write("\n");
}

void Progress::update(int64_t done) {
  reached_ = done;
  show(knows_total() && done >= total_);
}

void Progress::add(int64_t amount) {
  const int64_t reached = reached_.fetch_add(amount) + amount;
  show(knows_total() && reached >= total_);
}

void Progress::show(bool last) {
  std::unique_lock lock(mutex_, std::defer_lock);
  last ? lock.lock() : void(lock.try_lock());  // who is too late is shown by the next one
  if (!lock.owns_lock() || finished_ || !progress_is_wanted()) return;
  const double now = output_.clock();
  done_ = knows_total() ? std::min<int64_t>(reached_, total_) : reached_.load();
  finished_ = knows_total() && done_ == total_;
  if (now < next_write_ && !(written_ && finished_)) return;
  next_write_ = now + (output_.terminal ? kBarInterval : output_.line_seconds);
  write_state(now);
}

void Progress::write_state(double now) {
  written_ = true;
  output_.terminal ? write_bar(now) : write_line(now);
  if (!output_.terminal) return;
  bar_open_ = !finished_;
  if (!bar_open_) output_.write("\n");
}

std::string Progress::amount(int64_t value) const {
  return unit_ == ProgressUnit::kBytes ? readable_bytes(static_cast<double>(value)) : with_thousands_separators(value);
}

std::string Progress::rate(double now, const char* separator) const {
  const double seconds = now - started_;
  if (seconds <= 0 || done_ <= 0) return "";
  const double per_second = static_cast<double>(done_) / seconds;
  std::string text = separator;
  text += unit_ == ProgressUnit::kBytes ? readable_bytes(per_second) : readable_count(per_second);
  text += "/s";
  text += separator;
  if (!knows_total()) return text + "for " + readable_duration(seconds);
  if (done_ == total_) return text + "in " + readable_duration(seconds);
  return text + readable_duration(static_cast<double>(total_ - done_) / per_second) + " left";
}

void Progress::write_bar(double now) const {
  if (!knows_total()) {
    return output_.write(fmt::format("\r{:<24.24} {}{}\x1b[K", label_, amount(done_), rate(now, "  ")));
  }
  const auto filled = static_cast<size_t>(done_ * kBarWidth / total_);
  output_.write(fmt::format("\r{:<24.24} [{:-<{}}] {:3}%{}\x1b[K", label_, std::string(filled, '#'), kBarWidth,
                            done_ * 100 / total_, rate(now, "  ")));
}

void Progress::write_line(double now) const {
  if (!knows_total()) return output_.write(fmt::format("{}: {}{}\n", label_, amount(done_), rate(now, ", ")));
  output_.write(fmt::format("{}: {}% ({} of {}){}\n", label_, done_ * 100 / total_, amount(done_), amount(total_),
                            rate(now, ", ")));
}

}  // namespace titanium
