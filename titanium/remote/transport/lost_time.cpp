#include "titanium/remote/transport/lost_time.h"

#include <algorithm>

namespace titanium::remote {
namespace {

struct Here {
  std::shared_ptr<LostTime> lost;
  Clock::time_point began;
};

thread_local Here here;

}  // namespace

void LostTime::wait_since(Clock::time_point began) {
  const std::lock_guard lock(mutex_);
  somebody_waits_ = true;
  if (began == began_) return;
  began_ = counted_until_ = began;
  lost_ = {};
}

void LostTime::nobody_waits() {
  const std::lock_guard lock(mutex_);
  somebody_waits_ = false;
}

void LostTime::add(Clock::time_point from, Clock::time_point to) {
  const std::lock_guard lock(mutex_);
  if (!somebody_waits_ || to <= counted_until_) return;
  const Clock::time_point begin = std::max(from, counted_until_);
  lost_ = std::max(lost_ - (begin - counted_until_), Clock::duration::zero()) + (to - begin);
  counted_until_ = to;
}

Clock::duration LostTime::at(Clock::time_point moment) const {
  const std::lock_guard lock(mutex_);
  if (!somebody_waits_) return {};
  // Of a pause that goes on, only what has passed is lost; after it, time without failures gives back.
  const Clock::duration change = moment < counted_until_ ? counted_until_ - moment : moment - counted_until_;
  return std::max(lost_ - change, Clock::duration::zero());
}

OneWait::OneWait() : outer_(here.lost), outer_began_(here.began) {
  if (here.lost) return;
  here = {std::make_shared<LostTime>(), Clock::now()};
  here.lost->wait_since(here.began);
}

OneWait::OneWait(std::shared_ptr<LostTime> lost) : outer_(std::move(here.lost)), outer_began_(here.began) {
  here = {std::move(lost), Clock::now()};
}

OneWait::~OneWait() { here = {std::move(outer_), outer_began_}; }

Clock::time_point OneWait::began() const { return here.began; }

std::shared_ptr<LostTime> lost_time_here() { return here.lost; }

}  // namespace titanium::remote
