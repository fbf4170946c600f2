#include "titanium/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace titanium {
namespace {

constexpr int kBarWidth = 40;
constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr auto kSilence = std::chrono::seconds(1);

}  // namespace

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(std::max<int64_t>(total, 1)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      next_write_(std::chrono::steady_clock::now() + kSilence) {}

Progress::~Progress() {
  if (bar_open_) std::fputc('\n', stderr);
}

void Progress::update(int64_t done) {
  done_ = std::min(done, total_);
  const auto now = std::chrono::steady_clock::now();
  const bool begun = written_tenths_ >= 0 || bar_open_;
  if (now < next_write_ && !(begun && done_ == total_)) return;
  if (!terminal_) {
    const int64_t tenths = done_ * 10 / total_;
    if (tenths > written_tenths_) write_line();
    written_tenths_ = tenths;
    return;
  }
  next_write_ = now + kInterval;
  write_bar();
  bar_open_ = done_ < total_;
  if (!bar_open_) std::fputc('\n', stderr);
}

void Progress::write_bar() const {
  const auto filled = static_cast<size_t>(done_ * kBarWidth / total_);
  fmt::print(stderr, "\r{:<24} [{:-<{}}] {:3}%", label_, std::string(filled, '#'), kBarWidth, done_ * 100 / total_);
  std::fflush(stderr);
}

void Progress::write_line() const { fmt::print(stderr, "{}: {}%\n", label_, done_ * 100 / total_); }

}  // namespace titanium
