// What 1F1B and its interleaved descendants share: warm-up forwards, then a forward and a backward alternately.
#pragma once

#include "titanium/schedule/table.h"

namespace titanium::schedule {

struct Alternation {
  int warm_up_per_hop = 1;      // forwards more in the warm-up for each rank between this one and the last
  bool split_backward = false;  // I and W instead of B; on rank r, W comes r backwards after its I
};

// Micro-batches go in rounds of at least `ranks` (one round if there are fewer): a round passes through the rank's
// first stage, then through its second, and so on; backwards in the same rounds from the last stage to the first. Where
// the micro-batches do not divide into equal rounds, the table is that of the next larger number that does, less the
// micro-batches that are not there.
Table alternate(const Shape& shape, const Alternation& alternation);

}  // namespace titanium::schedule
