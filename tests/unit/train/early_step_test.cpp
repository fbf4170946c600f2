// Updates inside the backward, on every layout that has one backward per unit and step.
#include "titanium/train/early_step.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "tests/support/tiny_moe.h"
#include "titanium/parallel/data_parallel/fully_shard.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

using test::Layout;

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, Tensor> values;
};

Outcome train(const Layout& layout, bool early, const char* optimizer, const test::ModelMaker& make_model) {
  JobConfig config = test::configure(layout);
  config.training.max_norm = -1;
  config.training.steps = 4;
  config.optimizer.name = optimizer;
  config.optimizer.early_step_in_backward = early;
  Outcome outcome;
  std::mutex mutex;
  test::run_ranks(layout.ranks(), [&](comm::World& world) {
    TrainState run = test::build_run(config, make_model(), world);
    for (int64_t i = 0; i < config.training.steps; ++i) {
      const StepReport report = train_step(run).value();
      const double loss = loss_of_all_ranks(run, report).mean.item<double>();
      if (world.rank() != 0) continue;
      outcome.losses.push_back(loss);
      outcome.norms.push_back(report.grad_norm.item<double>());
    }
    {
      const std::lock_guard lock(mutex);
      for (const Parameter* parameter : run.parameters) {
        EXPECT_EQ(parameter->grad.defined(), !early) << parameter->fqn;
        Tensor& whole =
            outcome.values.try_emplace(parameter->fqn, at::full(parameter->global_shape, NAN)).first->second;
        box_of(whole, parameter->shard).copy_(parameter->value.detach());
      }
    }
    run.mesh->host_group("world")->barrier();
  });
  return outcome;
}

void expect_same_bits(const Layout& layout, const test::ModelMaker& make_model) {
  for (const char* optimizer : {"AdamW", "Muon"}) {
    SCOPED_TRACE(optimizer);
    const Outcome late = train(layout, false, optimizer, make_model),
                  early = train(layout, true, optimizer, make_model);
    EXPECT_EQ(early.losses, late.losses);
    EXPECT_NE(late.losses.front(), late.losses.back());
    for (size_t i = 0; i < late.norms.size(); ++i) EXPECT_NEAR(early.norms[i], late.norms[i], 1e-10);
    for (const auto& [name, value] : late.values) EXPECT_TRUE(at::equal(early.values.at(name), value)) << name;
  }
}

class EarlySteps : public testing::TestWithParam<Layout> {};

TEST_P(EarlySteps, GiveTheBitsOfLateOnes) {
  expect_same_bits(GetParam(),
                   [] { return std::make_unique<models::llama3::Llama3>(test::tiny_args(/*tied=*/false)); });
}

class EarlyExpertSteps : public testing::TestWithParam<Layout> {};

TEST_P(EarlyExpertSteps, GiveTheBitsOfLateOnes) {
  expect_same_bits(GetParam(), test::tiny_moe_maker(test::tiny_moe()));
}

void offload(JobConfig& config) { config.training.enable_cpu_offload = true; }

INSTANTIATE_TEST_SUITE_P(
    All, EarlySteps,
    testing::Values(Layout{"one", 1, 1, 1}, Layout{"fsdp2", 1, 2, 1}, Layout{"fsdp3_uneven", 1, 3, 1},
                    Layout{"fsdp_on_one_rank", 1, 1, 1, [](JobConfig& c) { c.parallelism.fsdp_on_one_rank = true; }},
                    Layout{"hsdp2x2", 2, 2, 1}, Layout{"dp2", 2, 1, 1},
                    Layout{"dp2_small_buckets", 2, 1, 1, [](JobConfig& c) { c.parallelism.ddp_bucket_mb = 1; }},
                    Layout{"tp2", 1, 1, 2}, Layout{"cp2", 1, 1, 1, [](JobConfig&) {}, 2}, Layout{"dp2_tp2", 2, 1, 2},
                    Layout{"fsdp2_offload", 1, 2, 1, offload}, Layout{"fsdp2_tp2_cp2_offload", 1, 2, 2, offload, 2}),
    [](const auto& info) { return info.param.name; });

std::function<void(JobConfig&)> experts(int64_t expert, int64_t expert_tensor = 1) {
  return [=](JobConfig& config) {
    config.parallelism.expert_parallel_degree = expert;
    config.parallelism.expert_tensor_parallel_degree = expert_tensor;
  };
}

INSTANTIATE_TEST_SUITE_P(All, EarlyExpertSteps,
                         testing::Values(Layout{"one", 1, 1, 1}, Layout{"dp2", 2, 1, 1}, Layout{"tp2", 1, 1, 2},
                                         Layout{"ep2", 1, 2, 1, experts(2)}, Layout{"fsdp2_ep2", 1, 4, 1, experts(2)},
                                         Layout{"hsdp2_ep2", 2, 2, 1, experts(2)},
                                         Layout{"tp4_ep2", 1, 1, 4, experts(2)},
                                         Layout{"tp2_ep2_etp2", 1, 2, 2, experts(2, 2)}),
                         [](const auto& info) { return info.param.name; });

// A unit is updated when its own reduction is done, not at the end.
TEST(EarlyStep, GradientsOfTwoUnitsAtMostAreThere) {
  const Layout layout{"fsdp2", 1, 2, 1};
  JobConfig config = test::configure(layout);
  config.training.max_norm = -1;
  config.optimizer.early_step_in_backward = true;
  test::run_ranks(layout.ranks(), [&](comm::World& world) {
    TrainState run = test::build_run(config, test::tiny_args(/*tied=*/false), world);
    size_t most = 0;
    dynamic_cast<parallel::FullyShard&>(*run.parallelism.data_parallel)
        .observe([&](std::string_view event, const auto&) {
          if (event != "reduce") return;
          const size_t units = static_cast<size_t>(std::ranges::count_if(run.model->units(), [](const nn::Unit* unit) {
            return std::ranges::any_of(unit->parameters, [](const Parameter* p) { return p->grad.defined(); });
          }));
          most = std::max(most, units);
        });
    train_step(run);
    EXPECT_LE(most, 2);
    run.mesh->host_group("world")->barrier();
  });
}

}  // namespace
}  // namespace titanium::train
