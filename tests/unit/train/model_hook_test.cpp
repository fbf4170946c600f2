// What a model does between the backward and the update of a step.
#include <ATen/ops/full.h>

#include <mutex>

#include "tests/support/tensors.h"
#include "tests/support/tiny_run.h"
#include "tests/support/toy_family.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

// What one rank has seen.
struct Seen {
  int64_t calls = 0;
  std::map<std::string, std::pair<Box, Tensor>> gradients;  // at the first call, with their places
  bool unchanged_weights = true;                            // since the last look
};

class CountingModel : public models::decoder::Decoder {
 public:
  using Family = std::shared_ptr<const models::decoder::Family>;
  CountingModel(const Family& family, const std::vector<models::ModelStage>& stages, Seen& seen)
      : Decoder(family, stages), own_family_(family), seen_(seen) {}

  std::unique_ptr<models::Model> part(const std::vector<models::ModelStage>& stages) const override {
    return std::make_unique<CountingModel>(own_family_, stages, seen_);
  }

  void before_update(const parallel::Mesh& mesh) override {
    ++seen_.calls;
    mesh.host_group("world")->barrier();  // all ranks are here
    for (const Parameter* parameter : parameters()) {
      if (seen_.calls == 1 && parameter->grad.defined()) {
        seen_.gradients[parameter->fqn] = {parameter->shard, parameter->grad.clone()};
      }
      const auto [old, is_first] = old_.try_emplace(parameter->fqn, parameter->value.detach().clone());
      seen_.unchanged_weights &= is_first || old->second.equal(parameter->value);
    }
  }
  void look_at_weights() {
    for (const Parameter* parameter : parameters()) old_[parameter->fqn] = parameter->value.detach().clone();
  }

 private:
  Family own_family_;
  Seen& seen_;
  std::map<std::string, Tensor> old_;
};

TrainState counting_run(const JobConfig& config, comm::World& world, Seen& seen) {
  test::toy::Args args = test::toy::flavors().at("tiny");
  args.max_seq_len = config.training.seq_len;
  const auto family = std::make_shared<test::toy::Family>(args);
  auto model = std::make_unique<CountingModel>(family, std::vector{models::whole_stage(family->args().n_layers)}, seen);
  return build_train_state(config, at::kCPU, std::shared_ptr<comm::World>(&world, [](comm::World*) {}),
                           plan_model(config, world.size(), world.rank(), std::move(model)));
}

// The whole gradients of the first step, from all ranks.
std::map<std::string, Tensor> gradients_of(const test::Layout& layout) {
  const JobConfig config = test::configure(layout);
  std::map<std::string, Tensor> whole;
  std::mutex mutex;
  test::run_ranks(layout.ranks(), [&](comm::World& world) {
    Seen seen;
    TrainState run = counting_run(config, world, seen);
    auto& model = dynamic_cast<CountingModel&>(*run.model);
    for (int64_t step = 1; step <= 3; ++step) {
      model.look_at_weights();
      train_step(run).value();
      EXPECT_EQ(seen.calls, step);
    }
    EXPECT_TRUE(seen.unchanged_weights);
    const std::lock_guard lock(mutex);
    for (const Parameter* parameter : run.parameters) {
      const auto& [box, gradient] = seen.gradients.at(parameter->fqn);
      box_of(whole.try_emplace(parameter->fqn, at::full(parameter->global_shape, NAN)).first->second, box)
          .copy_(gradient);
    }
  });
  return whole;
}

TEST(ModelHook, IsCalledOnceAStepOnEveryRankWithTheGradientsOfAllTokens) {
  const auto expected = gradients_of({"one", 1, 1, 1});
  for (const test::Layout& layout :
       {test::Layout{"accumulation", 1, 1, 1, [](JobConfig& c) { c.training.local_batch_size = 3; }},
        test::Layout{"fsdp2", 1, 2, 1}, test::Layout{"dp2", 2, 1, 1}, test::Layout{"tp2", 1, 1, 2},
        test::Layout{"fsdp2_tp2", 1, 2, 2}, test::Layout{"cp2", 1, 1, 1, [](JobConfig&) {}, 2},
        test::Layout{"pp2", 1, 1, 1, [](JobConfig&) {}, 1, 2}}) {
    SCOPED_TRACE(layout.name);
    const auto found = gradients_of(layout);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, gradient] : expected) {
      SCOPED_TRACE(name);
      EXPECT_CLOSE(found.at(name), gradient, 1e-5);
    }
  }
}

TEST(ModelHook, IsCalledOnceWhenTheOptimizerStepsInTheBackward) {
  JobConfig config = test::tiny_config();
  config.optimizer.early_step_in_backward = true;
  config.training.max_norm = -1;
  test::run_ranks(1, [&](comm::World& world) {
    Seen seen;
    TrainState run = counting_run(config, world, seen);
    train_step(run).value();
    train_step(run).value();
    EXPECT_EQ(seen.calls, 2);
  });
}

TEST(ModelHook, IsNotCalledForAStepWithoutData) {
  JobConfig config = test::tiny_config();
  config.validation.dataset = config.training.dataset;
  config.validation.dataset_path = config.training.dataset_path;
  config.validation.seq_len = config.training.seq_len;
  config.validation.local_batch_size = config.training.local_batch_size;
  config.validation.steps = -1;
  test::run_ranks(1, [&](comm::World& world) {
    Seen seen;
    TrainState run = counting_run(config, world, seen);
    run.data = run.task->validation_data();
    while (run.data->next()) {
    }
    EXPECT_FALSE(train_step(run).has_value());
    EXPECT_EQ(seen.calls, 0);
  });
}

}  // namespace
}  // namespace titanium::train
