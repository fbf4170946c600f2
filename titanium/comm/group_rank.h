// The ranks that a group is made of.
#pragma once

#include <algorithm>
#include <vector>

#include "titanium/base/error.h"
#include "titanium/comm/world.h"

namespace titanium::comm {

// The place of this process among `members`, which must be ascending ranks of `world` with this one among them.
inline int group_rank(const World& world, const std::vector<int>& members) {
  TI_ASSERT(!members.empty() && members.front() >= 0 && members.back() < world.size());
  TI_ASSERT(std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end(),
            "the members of a group are ascending");
  const auto place = std::lower_bound(members.begin(), members.end(), world.rank());
  TI_ASSERT(place != members.end() && *place == world.rank(), "rank {} is no member of the group", world.rank());
  return static_cast<int>(place - members.begin());
}

}  // namespace titanium::comm
