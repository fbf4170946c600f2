#include "titanium/schedule/rank_list.h"

#include <algorithm>

#include "titanium/base/error.h"

namespace titanium::schedule {

void RankList::forward(int stage) { list_.push_back({stage, Kind::kForward, forwards_[stage]++}); }

void RankList::input(int stage) {
  const int micro_batch = backwards_[stage]++;
  list_.push_back({stage, Kind::kInput, micro_batch});
  due_.push_back({stage, Kind::kWeight, micro_batch});
}

void RankList::backward(int stage) { list_.push_back({stage, Kind::kBackward, backwards_[stage]++}); }

void RankList::overlapped(int forward_stage, int backward_stage) {
  forward(forward_stage);
  list_.back().overlaps_next = true;
  backward(backward_stage);
}

void RankList::weight(int stage) {
  const auto found = std::ranges::find(due_, stage, &Action::stage);
  TI_ASSERT(found != due_.end(), "no weight gradient of stage {} is due", stage);
  list_.push_back(*found);
  due_.erase(found);
}

void RankList::weight() {
  TI_ASSERT(!due_.empty(), "no weight gradient is due");
  weight(due_.front().stage);
}

int RankList::forwards(int stage) const {
  const auto found = forwards_.find(stage);
  return found == forwards_.end() ? 0 : found->second;
}

bool RankList::weight_due(int stage) const { return std::ranges::find(due_, stage, &Action::stage) != due_.end(); }

}  // namespace titanium::schedule
