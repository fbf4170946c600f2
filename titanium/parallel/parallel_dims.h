// The degrees of parallelism of a run, and which rank stands where.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "titanium/config/job_config.h"

namespace titanium::parallel {

// Note [Three views of the ranks]
// The ranks 0 .. world-1 are numbered in three ways, outermost axis first:
//   data loading  [pp, batch, cp, tp]           who reads which samples; `loss` is batch and cp together
//   dense         [pp, dp_replicate, fsdp, tp]  who holds which part of ordinary parameters
//   sparse        [pp, dp_replicate, efsdp, ep, etp]  who holds which experts; where ep = 1, the dense view says so
// batch = dp_replicate * dp_shard, fsdp = dp_shard * cp, efsdp = fsdp * tp / (ep * etp).
struct ParallelDims {
  int64_t pp = 1;
  int64_t dp_replicate = 1;
  int64_t dp_shard = 1;
  int64_t cp = 1;
  int64_t tp = 1;
  int64_t ep = 1;
  int64_t etp = 1;

  int64_t world() const { return pp * dp_replicate * dp_shard * cp * tp; }
  int64_t batch() const { return dp_replicate * dp_shard; }
  int64_t fsdp() const { return dp_shard * cp; }
  int64_t loss() const { return batch() * cp; }
  int64_t efsdp() const { return fsdp() * tp / (ep * etp); }
  int64_t non_data_parallel_size() const { return cp * tp * pp; }
};

// dp_shard = -1 becomes what is left. Throws UsageError when the degrees do not make up `world_size`.
ParallelDims parallel_dims(const config::Parallelism& degrees, int64_t world_size);

// All axes: pp, batch, cp, tp, loss, dp_replicate, fsdp, efsdp, ep, etp. The functions below also know `world`, all
// ranks.
const std::vector<std::string>& axis_names();
int64_t axis_size(const ParallelDims& dims, std::string_view axis);
// The world ranks that `rank` shares the axis with, itself included, ascending.
std::vector<int> axis_members(const ParallelDims& dims, std::string_view axis, int rank);

// The place of `rank` among them.
int64_t axis_rank(const ParallelDims& dims, std::string_view axis, int rank);

// "pp=1, dp_replicate=2, dp_shard=4, cp=1, tp=8, ep=1, etp=1".
std::string describe(const ParallelDims& dims);
// The axes with more than one rank: "batch 8, fsdp 4, ...".
std::string describe_active_axes(const ParallelDims& dims);

}  // namespace titanium::parallel
