// Whole runs of a small model on ranks that are threads, to be compared with each other.
#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <map>

#include "tests/support/tensors.h"
#include "tests/support/tiny_run.h"
#include "titanium/train/train_step.h"

namespace titanium::test {

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<int64_t> valid_tokens;
  int64_t tokens_seen = 0;
  std::map<std::string, Tensor> initial, final;
};

// Writes this rank's shard into the whole tensor that all ranks share.
inline void store_shard(const Parameter& parameter, const Tensor& shard, Tensor& whole) {
  box_of(whole, parameter.shard).copy_(shard.detach());
}

inline void store_shards(const std::vector<Parameter*>& parameters, std::map<std::string, Tensor>& whole) {
  for (const Parameter* parameter : parameters) {
    store_shard(*parameter, parameter->value, whole.at(parameter->fqn));
  }
}

// Adam's parameters hardly depend on how long the gradients were; its moments do.
inline void store_moments(const optim::Optimizer& optimizer, std::map<std::string, Tensor>& whole) {
  for (const optim::StateTensor& part : optimizer.state()) {
    if (part.name == "step") continue;
    store_shard(*part.parameter, part.tensor, whole.at(part.parameter->fqn + "." + part.name));
  }
}

// The largest mean loss of a rank, found without the reductions that the run has for it.
inline double largest_mean(comm::Group& world, const train::StepReport& report) {
  const Tensor means = at::zeros({world.size()}, at::kDouble);
  const double weight = static_cast<double>(std::max<int64_t>(1, report.weight));
  world.all_gather(means, report.loss.view({1}) * (static_cast<double>(report.total_weight) / weight))->wait();
  return means.max().item<double>();
}

inline void train_rank(const JobConfig& config, const ModelMaker& make_model, comm::World& world, Outcome& outcome) {
  const bool reports = world.rank() == 0;
  train::TrainState run = build_run(config, make_model(), world);
  store_shards(run.parameters, outcome.initial);
  for (int64_t i = 0; i < config.training.steps; ++i) {
    const train::StepReport report = train::train_step(run).value();
    const train::LossOfAllRanks loss = train::loss_of_all_ranks(run, report);
    const double largest = largest_mean(*run.mesh->host_group("world"), report);
    EXPECT_NEAR(loss.max.item<double>(), largest, 1e-12 * largest);
    EXPECT_GT(report.grad_norm.item<double>(), config.training.max_norm);
    if (!reports) continue;
    outcome.losses.push_back(loss.mean.item<double>());
    outcome.norms.push_back(report.grad_norm.item<double>());
    outcome.valid_tokens.push_back(report.total_weight);
  }
  store_shards(run.parameters, outcome.final);
  store_moments(*run.optimizer, outcome.final);
  if (reports) outcome.tokens_seen = run.tokens_seen;
  run.mesh->host_group("world")->barrier();
}

inline Outcome train(const JobConfig& config, int ranks, const ModelMaker& make_model) {
  Outcome outcome;
  const auto model = make_model();
  for (const Parameter* parameter : model->parameters()) {
    outcome.initial[parameter->fqn] = at::full(parameter->global_shape, NAN);
    for (const char* kind : {"", ".exp_avg", ".exp_avg_sq"}) {
      outcome.final[parameter->fqn + kind] = at::full(parameter->global_shape, NAN);
    }
  }
  run_ranks(ranks, [&](comm::World& world) { train_rank(config, make_model, world, outcome); });
  return outcome;
}

// Largest relative differences.
struct Limits {
  double loss, norm, parameters;
};

inline void expect_same_run(const Outcome& outcome, const Outcome& one_rank, const Limits& limits) {
  ASSERT_EQ(outcome.losses.size(), one_rank.losses.size());
  for (size_t i = 0; i < one_rank.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], one_rank.losses[i], limits.loss * one_rank.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(outcome.norms[i], one_rank.norms[i], limits.norm * one_rank.norms[i]) << "step " << i + 1;
  }
  EXPECT_EQ(outcome.valid_tokens, one_rank.valid_tokens);
  EXPECT_EQ(outcome.tokens_seen, one_rank.tokens_seen);
  for (const auto& [name, tensor] : one_rank.initial) {
    EXPECT_TRUE(at::equal(outcome.initial.at(name), tensor)) << "initial " << name;
  }
  for (const auto& [name, tensor] : one_rank.final) {
    SCOPED_TRACE(name);
    EXPECT_CLOSE(outcome.final.at(name), tensor, limits.parameters);
  }
}

inline void expect_same_run(const Outcome& outcome, const Outcome& one_rank, double limit) {
  expect_same_run(outcome, one_rank, {limit, limit, limit});
}

}  // namespace titanium::test
