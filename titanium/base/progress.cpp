#include "titanium/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace titanium {
namespace {

constexpr int kBarWidth = 40;
constexpr auto kInterval = std::chrono::milliseconds(100);

}  // namespace

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)), total_(std::max<int64_t>(total, 1)), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (bar_open_) std::fputc('\n', stderr);
}

void Progress::update(int64_t done) {
  done_ = std::min(done, total_);
  const int64_t tenths = done_ * 10 / total_;
  if (!terminal_) {
    if (tenths > written_tenths_ && tenths > 0) write_line();
    written_tenths_ = tenths;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_write_ && done_ < total_) return;
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
