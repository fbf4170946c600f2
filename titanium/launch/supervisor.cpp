#include "titanium/launch/supervisor.h"

#include <algorithm>
#include <csignal>

namespace titanium::launch {

void Supervisor::processes_ended(std::vector<End> ends, Time now) {
  std::ranges::stable_sort(ends, std::greater(), [](const End& end) { return end.exit.signal != 0; });
  for (const End& end : ends) {
    living_[static_cast<size_t>(end.local_rank)] = false;
    if (end.exit.good()) continue;
    if (!first_failure_ && !peer_failed_) first_failure_ = end;
    end_others(now);
  }
}

void Supervisor::peer_failed(Time now) {
  peer_failed_ = true;
  end_others(now);
}

void Supervisor::stop_requested(int signal, Time now) {
  if (signal == SIGTERM && std::exchange(sigterm_received_, true)) return;
  forward_ = signal;
  if (signal == SIGINT && ++sigints_ == 2 && !sigkill_at_) sigkill_at_ = now + kAfterSigterm;
}

void Supervisor::end_others(Time now) {
  if (!sigterm_at_) sigterm_at_ = now + kToEndAlone;
}

std::optional<int> Supervisor::due_signal(Time now) {
  if (forward_ != 0) return std::exchange(forward_, 0);
  if (sigkill_at_ && now >= *sigkill_at_) {
    sigkill_at_ = sigterm_at_ = Time::max();
    return SIGKILL;
  }
  if (sigterm_at_ && now >= *sigterm_at_) {
    sigterm_at_ = Time::max();
    sigkill_at_ = std::min(sigkill_at_.value_or(Time::max()), now + kAfterSigterm);
    return SIGTERM;
  }
  return std::nullopt;
}

std::optional<Supervisor::Time> Supervisor::next_deadline() const {
  const Time next = std::min(sigterm_at_.value_or(Time::max()), sigkill_at_.value_or(Time::max()));
  return next == Time::max() ? std::nullopt : std::optional(next);
}

bool Supervisor::finished() const { return std::ranges::none_of(living_, std::identity()); }

}  // namespace titanium::launch
