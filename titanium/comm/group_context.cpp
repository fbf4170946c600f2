#include "titanium/comm/group_context.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>

#include "titanium/base/error.h"

namespace titanium::comm {
namespace {

bool mentions(const std::string& message, std::initializer_list<std::string_view> words) {
  std::string lower = message;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(words.begin(), words.end(), [&](auto word) { return lower.find(word) != std::string::npos; });
}

// Gloo puts "[.../pair.cc:534] " before its messages.
std::string without_place(const std::string& message) {
  const size_t end = message.find("] ");
  return message.starts_with("[") && end != std::string::npos ? message.substr(end + 2) : message;
}

// A death is known to everybody this fast, unless rank 0 itself stands still.
constexpr std::chrono::seconds kNewsTime(2);

}  // namespace

Deadline GroupContext::deadline() const {
  const std::lock_guard lock(mutex_);
  return deadline_;
}

std::chrono::milliseconds GroupContext::timeout() const {
  const std::lock_guard lock(mutex_);
  return deadline_.timeout;
}

void GroupContext::set_deadline(Deadline deadline) {
  const std::lock_guard lock(mutex_);
  deadline_ = std::move(deadline);
}

void GroupContext::set_lifeline(const std::shared_ptr<Lifeline>& lifeline) {
  const std::lock_guard lock(mutex_);
  lifeline_ = lifeline;
}

std::string GroupContext::explain(const std::exception& error, int peer) const {
  const std::string message = message_of(error);
  if (mentions(message, {"timed out", "timeout"})) {
    const Deadline limit = deadline();
    return fmt::format("no answer from {} within {} s ({}): it hangs, is slower than that, or left the program",
                       peer < 0 ? "a peer" : fmt::format("rank {}", peer), seconds_text(limit.timeout), limit.option);
  }
  if (mentions(message, {"closed by peer", "connection reset", "broken pipe", "connection refused"})) {
    std::shared_ptr<Lifeline> lifeline;
    {
      const std::lock_guard lock(mutex_);
      lifeline = lifeline_.lock();
    }
    if (const auto news = lifeline ? lifeline->wait_for_news(kNewsTime) : std::nullopt) return *news;
    return fmt::format("{} closed the connection", peer < 0 ? "a peer" : fmt::format("rank {}", peer));
  }
  return without_place(message);
}

std::string message_of(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) return c10_error->what_without_backtrace();
  return error.what();
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g}", std::chrono::duration<double>(time).count());
}

}  // namespace titanium::comm
