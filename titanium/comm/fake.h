// Groups that do not communicate.
#pragma once

#include "titanium/comm/group.h"

namespace titanium::comm {

// Every other rank is taken to hold what this one holds; collectives end at once. For one member that is exact.
GroupPtr make_fake_group(const std::string& axis, int rank, const std::vector<int>& members);

}  // namespace titanium::comm
