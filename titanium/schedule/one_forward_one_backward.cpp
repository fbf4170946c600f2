#include "titanium/schedule/alternation.h"
#include "titanium/schedule/schedules.h"

namespace titanium::schedule {

Table one_forward_one_backward(const Shape& shape) { return alternate(shape, {.warm_up_per_hop = 1}); }

}  // namespace titanium::schedule
