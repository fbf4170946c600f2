#include "titanium/schedule/alternation.h"
#include "titanium/schedule/schedules.h"

namespace titanium::schedule {

Table interleaved_1f1b(const Shape& shape) { return alternate(shape, {.warm_up_per_hop = 2}); }

}  // namespace titanium::schedule
