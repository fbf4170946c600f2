// The optimizer that the section optimizer asks for, over the parameters of a model.
#pragma once

#include <memory>

#include "titanium/config/job_config.h"
#include "titanium/models/model_spec.h"
#include "titanium/optim/optimizer.h"
#include "titanium/parallel/owner_exchange.h"

namespace titanium::train {

// Throws UsageError if a group of optimizer.param_groups takes no parameter of the whole model.
void check_parameter_groups(const config::Optimizer& options, const models::Model& model);

// The optimizer without state, and what its matrices travel by.
struct OptimizerPlan {
  std::unique_ptr<optim::Optimizer> optimizer;
  std::shared_ptr<parallel::OwnerExchange> matrices;  // null without Muon; to be connected before the first step
};

// Plans for the model, or the part of it that is on world rank `rank`; its parameters are placed and need not be
// materialised. A parameter that no group of optimizer.param_groups takes may be in one of the family's.
OptimizerPlan plan_optimizer(const JobConfig& config, const models::TrainingDefaults& defaults, models::Model& model,
                             const parallel::ParallelDims& dims, int rank);

}  // namespace titanium::train
