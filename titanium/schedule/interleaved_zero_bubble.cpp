#include "titanium/schedule/alternation.h"
#include "titanium/schedule/schedules.h"

namespace titanium::schedule {

Table interleaved_zero_bubble(const Shape& shape) {
  return alternate(shape, {.warm_up_per_hop = 1, .split_backward = true});
}

}  // namespace titanium::schedule
