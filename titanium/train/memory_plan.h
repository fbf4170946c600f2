// How much device memory a run will need on this rank, by part, before it starts.
#pragma once

#include <string>
#include <vector>

#include "titanium/config/job_config.h"
#include "titanium/models/parallelize.h"
#include "titanium/optim/optimizer.h"

namespace titanium::train {

// What networks take that a run uses and does not train.
struct FrozenMemory {
  int64_t weights = 0;
  int64_t on_host = 0;  // of weights that are in host memory whatever the device is
  int64_t working = 0;  // while they run: before a batch's forward, or between steps
};

struct MemoryPlan {
  int64_t parameters = 0;     // in training.dtype
  int64_t computed_copy = 0;  // the same in the compute dtype, where it differs; with FSDP the gathered units
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t communication = 0;  // buffers of FSDP or DDP, and of the exchange of keys and values
  int64_t frozen = 0;         // weights of networks that are not trained
  int64_t on_host = 0;        // the same in host memory: no part of the total, which is the device's
  int64_t activations = 0;    // kept from forward to backward
  int64_t working = 0;        // temporaries at the moment when most is needed
  int64_t shared = 0;         // what gradients take of the room that activations have left by then: not needed twice
  int64_t expert_rows = 0;    // of activations and working memory: rows of experts that get their share of all rows
  int64_t most_rows = 0;      // the same if all tokens choose the experts of this rank
  int64_t worst_total() const { return total() + most_rows - expert_rows; }
  int64_t total() const {
    return parameters + computed_copy + gradients + optimizer + communication + frozen + activations + working - shared;
  }
};

// What a rank has of samples at a time.
struct SampleSizes {
  int64_t live = 1;    // for how many of them the blocks keep what they save
  int64_t tokens = 1;  // of each, over all ranks that share it
};

// The parameters are placed (models/parallelize.h) and need not be materialised. `levels` are those of
// parallel/activation_checkpoint.h. docs/distributed.md has the formulas.
MemoryPlan plan_memory(models::Model& model, const optim::Optimizer& optimizer, const JobConfig& config,
                       const parallel::ParallelDims& dims, const std::vector<size_t>& levels,
                       const SampleSizes& samples, const FrozenMemory& frozen = {});

// "parameters 0.02 GiB, gradients ..., total ..."; where experts are spread over ranks, with their rows.
std::string describe(const MemoryPlan& plan);

// Throws UsageError with the plan and the remedies if it exceeds `device_bytes`.
void check_fits(const MemoryPlan& plan, int64_t device_bytes);

}  // namespace titanium::train
