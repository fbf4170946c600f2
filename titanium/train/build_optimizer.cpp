#include "titanium/train/build_optimizer.h"

#include <set>

#include "titanium/base/error.h"
#include "titanium/config/parameter_groups.h"
#include "titanium/optim/adam.h"
#include "titanium/optim/muon.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

optim::AdamOptions adam_options(const config::Optimizer& options, const config::Debug& debug) {
  optim::AdamOptions adam = {.beta1 = options.beta1,
                             .beta2 = options.beta2,
                             .eps = options.eps,
                             .weight_decay = options.weight_decay,
                             .decoupled = options.name != "Adam",
                             .implementation = options.implementation};
  if (options.bf16_stochastic_rounding) adam.rounding_seed = weight_seed(debug);
  return adam;
}

optim::MuonOptions muon_options(const config::Optimizer& options) {
  return {.momentum = options.muon.momentum,
          .nesterov = options.muon.nesterov,
          .weight_decay = options.weight_decay,
          .scale = optim::parse_muon_scale(options.muon.adjust_lr_fn),
          .newton_schulz = {
              .steps = options.muon.ns_steps, .dtype = parse_dtype(options.muon.ns_dtype), .eps = options.muon.eps}};
}

// What Muon may take: weights of blocks that are matrices, or stacks of them. A stack of biases looks like a matrix.
std::set<const Parameter*> matrices_of_blocks(models::Model& model) {
  std::set<const Parameter*> matrices;
  for (const nn::Unit* unit : model.units()) {
    if (unit->role != nn::UnitRole::kBlock) continue;
    for (const Parameter* parameter : unit->parameters) {
      if (parameter->global_shape.size() >= 2 && !parameter->fqn.ends_with("bias")) matrices.insert(parameter);
    }
  }
  return matrices;
}

// Those of the job, then those of the family.
std::vector<config::ParameterGroup> all_groups(config::Optimizer options, const models::TrainingDefaults& defaults) {
  options.param_groups.insert(options.param_groups.end(), defaults.parameter_groups.begin(),
                              defaults.parameter_groups.end());
  return parameter_groups(options);
}

// The parameters of the model that belong to no group, and then those of each group.
std::vector<std::vector<Parameter*>> divide(const std::vector<Parameter*>& parameters,
                                            const std::vector<config::ParameterGroup>& groups) {
  std::vector<std::vector<Parameter*>> divided(1 + groups.size());
  for (Parameter* parameter : parameters) {
    const config::ParameterGroup* group = find_group(groups, parameter->fqn);
    divided[group == nullptr ? 0 : 1 + static_cast<size_t>(group - groups.data())].push_back(parameter);
  }
  return divided;
}

}  // namespace

void check_parameter_groups(const config::Optimizer& options, const models::Model& model) {
  const std::vector<config::ParameterGroup> groups = parameter_groups(options);
  const auto divided = divide(model.parameters(), groups);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!divided[1 + i].empty()) continue;
    throw UsageError(
        fmt::format("optimizer.param_groups: no parameter is left for the group \"{}\". Names are such as "
                    "{}; the first group that matches takes a parameter.",
                    groups[i].pattern, model.parameters().back()->fqn));
  }
}

OptimizerPlan plan_optimizer(const JobConfig& config, const models::TrainingDefaults& defaults, models::Model& model,
                             const parallel::ParallelDims& dims, int rank) {
  const std::vector<config::ParameterGroup> groups = all_groups(config.optimizer, defaults);
  const auto divided = divide(model.parameters(), groups);
  const std::set<const Parameter*> matrices = matrices_of_blocks(model);
  std::vector<optim::AdamGroup> of_adam;
  std::vector<optim::MuonGroup> of_muon;
  std::vector<Parameter*> orthogonal;
  for (size_t i = 0; i < divided.size(); ++i) {
    const config::Optimizer& options = i == 0 ? config.optimizer : groups[i - 1].options;
    std::vector<Parameter*> plain, muon;
    for (Parameter* parameter : divided[i]) {
      (options.name == "Muon" && matrices.contains(parameter) ? muon : plain).push_back(parameter);
    }
    if (!plain.empty()) of_adam.push_back({plain, adam_options(options, config.debug), options.lr_factor});
    if (!muon.empty()) of_muon.push_back({muon, muon_options(options), options.lr_factor * options.muon.lr_factor});
    orthogonal.insert(orthogonal.end(), muon.begin(), muon.end());
  }
  OptimizerPlan plan;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  if (!of_muon.empty()) {
    plan.matrices = std::make_shared<parallel::OwnerExchange>(orthogonal, dims, rank);
    optimizers.push_back(std::make_unique<optim::Muon>(of_muon, plan.matrices));
  }
  if (!of_adam.empty()) optimizers.push_back(std::make_unique<optim::Adam>(of_adam));
  plan.optimizer = optimizers.size() == 1 ? std::move(optimizers.front()) : optim::together(std::move(optimizers));
  return plan;
}

}  // namespace titanium::train
