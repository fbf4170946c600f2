// Parallelism around a model that knows nothing of it.
#pragma once

#include <memory>

#include "titanium/config/job_config.h"
#include "titanium/models/model.h"
#include "titanium/parallel/data_parallel/data_parallel.h"
#include "titanium/parallel/mesh.h"

namespace titanium::models {

// What has to live as long as the model runs in parallel.
struct Parallelism {
  std::unique_ptr<ops::RowExchange> exchange;             // null without tensor parallelism
  std::unique_ptr<ops::ContextExchange> context;          // null without context parallelism
  std::unique_ptr<ops::ExpertExchange> experts;           // null without expert parallelism
  std::unique_ptr<parallel::DataParallel> data_parallel;  // never null
  ops::SequenceShare share;                               // what this rank has of each sequence
};

// Parameters are sharded over the shard axes of their views, and gathered around each use.
bool is_fully_sharded(const config::Parallelism& options, const parallel::ParallelDims& dims);

// Gives every parameter the part and the shard that world rank `rank` holds. Allocates nothing: works for any number of
// ranks. Throws UsageError for degrees that do not fit the model.
void place_parameters(Model& model, const JobConfig& config, const parallel::ParallelDims& dims, int rank);

// Connects a materialised model, whose parameters are placed, with the other ranks, and logs what was applied.
Parallelism parallelize(Model& model, const JobConfig& config, const parallel::Mesh& mesh, Device device);

}  // namespace titanium::models
