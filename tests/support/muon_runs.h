// Training with Muon on ranks that are threads, with all values and states at their begin and end.
#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <map>
#include <mutex>

#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/tiny_run.h"
#include "titanium/train/checkpointer.h"
#include "titanium/train/train_step.h"

namespace titanium::test {

inline JobConfig muon_config(const Layout& layout) {
  JobConfig config = configure(layout);
  config.optimizer.name = "Muon";
  config.optimizer.muon.ns_dtype = "float32";
  config.training.max_norm = 0.1;  // norms are about 0.4
  config.training.steps = 6;
  return config;
}

// Values and states of a whole model.
using Tensors = std::map<std::string, Tensor>;

// Puts what this rank has into the whole; ranks that hold the same must agree.
inline void store(const train::TrainState& run, Tensors& whole) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto put = [&](const std::string& name, const Parameter& parameter, const Tensor& tensor) {
    if (tensor.dim() == 0) return;
    Tensor& place = whole.try_emplace(name, at::full(parameter.global_shape, NAN)).first->second;
    const Tensor box = box_of(place, parameter.shard);
    EXPECT_TRUE((box.isnan() | (box == tensor)).all().item<bool>()) << "copies of " << name << " differ";
    box.copy_(tensor.detach());
  };
  for (const Parameter* parameter : run.parameters) put(parameter->fqn, *parameter, parameter->value);
  for (const auto& part : run.optimizer->state())
    put(part.parameter->fqn + "." + part.name, *part.parameter, part.tensor);
}

struct Trained {
  Tensors begin, end;
};

// Trains to step `until` and saves where the configuration says so.
inline Trained train_until(const JobConfig& config, const Layout& layout, int64_t until, const ModelMaker& make_model) {
  Trained runs;
  run_ranks(layout.ranks(), [&](comm::World& world) {
    train::TrainState run = build_run(config, make_model(), world);
    store(run, runs.begin);
    train::Checkpointer checkpointer(run);
    while (run.step < until) {
      EXPECT_GT(train::train_step(run)->grad_norm.item<double>(), config.training.max_norm);
      checkpointer.after_step({});
    }
    checkpointer.finish();
    store(run, runs.end);
    run.mesh->host_group("world")->barrier();
  });
  return runs;
}

inline void expect_close(const Tensors& found, const Tensors& expected, double limit) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    SCOPED_TRACE(name);
    EXPECT_CLOSE(found.at(name), tensor, limit);
  }
}

// A run that stops at step 3 in one layout and goes on in another begins there with the same bits, and ends as
// `uninterrupted` does.
inline void expect_to_go_on(const Layout& from, const Layout& to, const Tensors& uninterrupted,
                            const ModelMaker& make_model) {
  SCOPED_TRACE(std::string(from.name) + " to " + to.name);
  const auto folder = test_folder() / (std::string(from.name) + "_" + to.name);
  const auto train = [&](const Layout& layout, int64_t until) {
    JobConfig config = muon_config(layout);
    config.job.dump_folder = folder.string();
    config.checkpoint.enable = true;
    config.checkpoint.interval = 3;
    config.checkpoint.last_save_model_only = false;
    return train_until(config, layout, until, make_model);
  };
  const Tensors saved = train(from, 3).end;
  const Trained resumed = train(to, 6);
  for (const auto& [name, tensor] : saved) EXPECT_TRUE(at::equal(resumed.begin.at(name), tensor)) << name;
  expect_close(resumed.end, uninterrupted, 1e-5);
}

}  // namespace titanium::test
