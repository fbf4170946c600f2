// The schedules by name, and which stages they want.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "titanium/schedule/table.h"

namespace titanium::schedule {

// Below, p = ranks, v = stages per rank, m = micro-batches. Each takes any m >= 1; with few micro-batches the pipeline
// is not filled, which is valid but slow. Order and memory of each are in docs/pipeline.md.

// All forwards, then all backwards. v = 1.
Table gpipe(const Shape& shape);

// At most p - rank activations live: after the warm-up, one forward and one backward alternate. v = 1.
Table one_forward_one_backward(const Shape& shape);

// One forward and one backward alternate, over v stages per rank in rounds of about p micro-batches.
Table interleaved_1f1b(const Shape& shape);

// All micro-batches through a stage before the next stage of the rank, then the same backwards.
Table looped_bfs(const Shape& shape);

// Like interleaved 1F1B with half the warm-up; W fills what would be idle ("ZB1P").
Table interleaved_zero_bubble(const Shape& shape);

// V placement, v = 2; no idle slot after the pipeline is filled if F, I and W take equally long ("ZB-V").
Table zbv_zero_bubble(const Shape& shape);

// V placement, v = 2; forwards and backwards in overlapped pairs.
Table dual_pipe_v(const Shape& shape);

struct Schedule {
  std::string_view name;  // as torchtitan writes it
  int min_stages_per_rank;
  int max_stages_per_rank;
  int default_stages_per_rank;
  Placement placement;
  Table (*build)(const Shape& shape);  // null: the table comes from a CSV file
};

// Upper and lower case do not matter. An unknown name throws UsageError with the list.
const Schedule& find_schedule(std::string_view name);

std::vector<std::string> schedule_names();

// The table of a schedule. Throws UsageError if the shape is not positive, larger than a table may be, or does not suit
// the schedule, or if the schedule is one that comes from a CSV file.
Table build_table(const Schedule& schedule, const Shape& shape);

// Throws UsageError if `stages_per_rank` is not what the schedule can run.
void check_stages_per_rank(const Schedule& schedule, int64_t stages_per_rank);

}  // namespace titanium::schedule
