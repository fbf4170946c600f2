// One rank asks hubs and buckets what they have, for all.
#pragma once

#include "titanium/comm/world.h"
#include "titanium/config/job_config.h"

namespace titanium::train {

// Rank 0 lists the addresses that the run reads its data from, and the data layer of every rank gets what came of it,
// also where that is an error: each throws the same one when it looks for its files. To be called by all ranks, before
// any of them does. Does nothing where there are no addresses, or all ranks are in one process.
void share_listings(comm::World& world, const JobConfig& config);

}  // namespace titanium::train
