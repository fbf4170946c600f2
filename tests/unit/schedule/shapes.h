// Every schedule in many sizes, and sentences of errors.
#pragma once

#include <gtest/gtest.h>

#include "titanium/base/error.h"
#include "titanium/schedule/schedules.h"

namespace titanium::schedule {

// Calls visit(schedule, shape) for all schedules with a table of their own.
template <typename Visit>
void for_all_shapes(Visit visit) {
  for (const std::string& name : schedule_names()) {
    const Schedule& schedule = find_schedule(name);
    if (!schedule.build) continue;
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int stages = schedule.min_stages_per_rank; stages <= std::min(4, schedule.max_stages_per_rank); ++stages) {
        for (const int micro_batches : {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 24}) {
          SCOPED_TRACE(fmt::format("{} {} ranks x {} stages, {} micro-batches", name, ranks, stages, micro_batches));
          visit(schedule, Shape{ranks, stages, micro_batches});
        }
      }
    }
  }
}

// The sentence with which `run` is refused; empty if it is not.
template <typename Run>
std::string refusal(Run run) {
  try {
    run();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace titanium::schedule
