#include "titanium/remote/reading/windowed_bytes.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <future>

namespace titanium::remote {
namespace {

constexpr int64_t kSmallest = 64 << 10;
constexpr size_t kWindows = 4, kExpected = 16, kDeepest = 8, kDeepestOfSmall = 4;

}  // namespace

void WindowedBytes::expect(int64_t begin, int64_t end) const {
  const std::lock_guard lock(mutex_);
  const std::pair range(begin, std::min(end, source_->size()));
  expected_.remove(range);  // told again, it takes the place of no other
  expected_.push_front(range);
  if (expected_.size() > kExpected) expected_.pop_back();
}

void WindowedBytes::read(int64_t offset, std::span<char> out) const {
  const std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(out.size()) > largest_) return read_around(offset, out);
  while (!out.empty()) {
    Window& window = window_at(offset, static_cast<int64_t>(out.size()));
    const auto count = static_cast<size_t>(std::min<int64_t>(window.end() - offset, static_cast<int64_t>(out.size())));
    std::memcpy(out.data(), window.bytes.data() + (offset - window.begin), count);
    out = out.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

// The window that holds the byte at `offset`, read now if there is none.
WindowedBytes::Window& WindowedBytes::window_at(int64_t offset, int64_t wanted) const {
  auto found = std::ranges::find_if(
      windows_, [&](const Window& window) { return offset >= window.begin && offset < window.end(); });
  if (found == windows_.end()) found = std::ranges::find(windows_, offset, &Window::end);
  if (found != windows_.end()) {
    windows_.splice(windows_.begin(), windows_, found);
    if (offset == windows_.front().end()) read_on(windows_.front());
    return windows_.front();
  }
  bool expected = false;
  const int64_t limit = std::max(limit_of(offset, expected), offset + wanted);
  const PiecesAhead::Sizes sizes{.first = std::max(expected ? largest_ : kSmallest, wanted),
                                 .largest = largest_,
                                 .depth = expected ? size_t{1} : size_t{0},
                                 .deepest = largest_ == kLargest ? kDeepest : kDeepestOfSmall};
  Window window{offset, PiecesAhead(source_, offset, sizes)};
  window.bytes = window.pieces.next(limit);
  windows_.push_front(std::move(window));
  if (windows_.size() > kWindows) windows_.pop_back();
  return windows_.front();
}

// Moves a window that was used up to what follows it.
void WindowedBytes::read_on(Window& window) const {
  const int64_t begin = window.end();
  bool expected = false;
  const int64_t limit = std::max(limit_of(begin, expected), begin + 1);
  std::vector<char> bytes = window.pieces.next(limit);
  window.begin = begin;
  window.bytes = std::move(bytes);
}

// Where reading ahead from `offset` has to stop.
int64_t WindowedBytes::limit_of(int64_t offset, bool& expected) const {
  for (const auto& [begin, end] : expected_) {
    expected = offset >= begin && offset < end;
    if (expected) return end;
  }
  return source_->size();
}

void WindowedBytes::read_around(int64_t offset, std::span<char> out) const {
  std::deque<std::future<void>> under_way;
  for (int64_t at = 0; at < static_cast<int64_t>(out.size()); at += kLargest) {
    if (under_way.size() == kDeepest) {
      under_way.front().get();
      under_way.pop_front();
    }
    const auto count = std::min<int64_t>(kLargest, static_cast<int64_t>(out.size()) - at);
    const std::span<char> piece = out.subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    under_way.push_back(in_background([this, at = offset + at, piece] { source_->read(at, piece); }));
  }
  for (auto& read : under_way) read.get();
}

}  // namespace titanium::remote
