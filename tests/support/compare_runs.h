// Whole runs of a small model on ranks that are threads, to be compared with each other.
#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <map>

#include "tests/support/tensors.h"
#include "tests/support/tiny_run.h"
#include "titanium/train/train_step.h"

namespace titanium::test {

struct Outcome {
  std::vector<double> losses, max_losses, norms;
  std::vector<int64_t> valid_tokens;
  int64_t tokens_seen = 0;
  std::map<std::string, Tensor> initial, final;
};

// Writes this rank's shard into the whole tensor that all ranks share.
inline void store_shards(const std::vector<Parameter*>& parameters, std::map<std::string, Tensor>& whole) {
  for (const Parameter* parameter : parameters) {
    box_of(whole.at(parameter->fqn), parameter->shard).copy_(parameter->value.detach());
  }
}

inline void train_rank(const JobConfig& config, const ModelMaker& make_model, comm::World& world, Outcome& outcome) {
  const bool reports = world.rank() == 0;
  train::TrainState run = build_run(config, make_model(), world);
  store_shards(run.parameters, outcome.initial);
  for (int64_t i = 0; i < config.training.steps; ++i) {
    const train::StepReport report = train::train_step(run).value();
    const train::LossOfAllRanks loss = train::loss_of_all_ranks(run, report);
    if (!reports) continue;
    outcome.losses.push_back(loss.mean.item<double>());
    outcome.max_losses.push_back(loss.max.item<double>());
    outcome.norms.push_back(report.grad_norm.item<double>());
    outcome.valid_tokens.push_back(report.all_valid_tokens);
  }
  store_shards(run.parameters, outcome.final);
  if (reports) outcome.tokens_seen = run.tokens_seen;
  run.mesh->host_group("world")->barrier();
}

inline Outcome train(const JobConfig& config, int ranks, const ModelMaker& make_model) {
  Outcome outcome;
  const auto model = make_model();
  for (const Parameter* parameter : model->parameters()) {
    outcome.initial[parameter->fqn] = at::full(parameter->global_shape, NAN);
    outcome.final[parameter->fqn] = at::full(parameter->global_shape, NAN);
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
    EXPECT_GE(outcome.max_losses[i], outcome.losses[i] * (1 - 1e-12));
  }
  EXPECT_EQ(outcome.valid_tokens, one_rank.valid_tokens);
  EXPECT_EQ(outcome.tokens_seen, one_rank.tokens_seen);
  for (const auto& [name, tensor] : one_rank.initial) {
    EXPECT_TRUE(at::equal(outcome.initial.at(name), tensor)) << "initial " << name;
    EXPECT_CLOSE(outcome.final.at(name), one_rank.final.at(name), limits.parameters);
  }
}

inline void expect_same_run(const Outcome& outcome, const Outcome& one_rank, double limit) {
  expect_same_run(outcome, one_rank, {limit, limit, limit});
}

}  // namespace titanium::test
