// Frozen weights that come and go in groups, whole on every rank or cut over a group of ranks.
#pragma once

#include <functional>
#include <vector>

#include "titanium/comm/group.h"
#include "titanium/tensor/tensor.h"

namespace titanium::models {

// Called once for each use: begins to gather the group's weights, and the function that it returns waits for them. So a
// network can let the next group travel while it computes with this one. All ranks use the same groups in the same
// order. What is returned is not to be written to.
using FrozenFetch = std::function<std::vector<Tensor>()>;
using FrozenGroup = std::function<FrozenFetch()>;

// Takes the whole weights of a group and keeps what this rank is to keep.
using KeepFrozen = std::function<FrozenGroup(std::vector<Tensor> weights)>;

KeepFrozen keep_whole();
// Each rank of `ranks` keeps an equal part of every group, filled up with zeros at the end.
KeepFrozen keep_shards(comm::GroupPtr ranks);

}  // namespace titanium::models
