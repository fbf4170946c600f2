// Any valid table gives the gradients of the whole, whatever the order of its actions.
#include "titanium/parallel/pipeline_runner.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "tests/support/tensors.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/schedule/check.h"
#include "titanium/schedule/csv.h"
#include "titanium/schedule/schedules.h"

namespace titanium::parallel {
namespace {

using schedule::Action;
using schedule::Kind;

constexpr int64_t kRows = 5, kWidth = 6;

// Stages that multiply, each with a weight of its own.
struct Stages {
  explicit Stages(int count, int seed) {
    const at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));  // each rank its own
    for (int stage = 0; stage < count; ++stage) {
      auto weight = std::make_unique<Parameter>(fmt::format("stage{}", stage), Shape{kWidth, kWidth});
      weight->materialize(at::kDouble, at::kCPU);
      weight->value.detach().copy_(at::randn({kWidth, kWidth}, generator, at::kDouble));
      weights.push_back(std::move(weight));
    }
    for (int i = 0; i < 8; ++i) inputs.push_back(at::randn({kRows, kWidth}, generator, at::kDouble).requires_grad_());
  }

  Tensor forward(int stage, int micro_batch, const Tensor& input) {
    const Tensor x = stage == 0 ? inputs[static_cast<size_t>(micro_batch)] : input;
    const Tensor y = ops::linear(x.tanh(), *weights[static_cast<size_t>(stage)]);
    return stage + 1 == static_cast<int>(weights.size()) ? y.pow(2).sum() : y;
  }

  StageForward stage_forward() {
    return
        [this](int stage, int i, const Tensors& x) { return Tensors{forward(stage, i, x.empty() ? Tensor() : x[0])}; };
  }

  std::vector<std::unique_ptr<Parameter>> weights;
  std::vector<Tensor> inputs;
};

// A valid table in which everything else is left to chance: who owns what, in which order, whole or split backwards.
schedule::Table random_table(std::mt19937& random) {
  const auto below = [&](size_t limit) { return static_cast<int>(random() % limit); };
  schedule::Table table{.micro_batches = 1 + below(5)};
  const int ranks = 2 + below(2);
  const int stages = ranks * (1 + below(2));
  for (int stage = 0; stage < stages; ++stage) table.owner.push_back(stage % ranks);
  std::shuffle(table.owner.begin(), table.owner.end(), random);
  table.ranks.resize(static_cast<size_t>(ranks));
  const bool split = random() % 2 == 0;
  std::set<Action> done;
  const auto is_done = [&](int stage, Kind kind, int micro_batch) { return done.contains({stage, kind, micro_batch}); };
  const auto has_gradient = [&](int stage, int i) {
    return stage == stages || is_done(stage, Kind::kInput, i) || is_done(stage, Kind::kBackward, i);
  };
  while (true) {
    std::vector<Action> ready;
    for (int stage = 0; stage < stages; ++stage) {
      for (int i = 0; i < table.micro_batches; ++i) {
        const bool forward = is_done(stage, Kind::kForward, i);
        if (!forward && (stage == 0 || is_done(stage - 1, Kind::kForward, i)))
          ready.push_back({stage, Kind::kForward, i});
        if (forward && !has_gradient(stage, i) && has_gradient(stage + 1, i)) {
          ready.push_back({stage, split ? Kind::kInput : Kind::kBackward, i});
        }
        if (is_done(stage, Kind::kInput, i) && !is_done(stage, Kind::kWeight, i))
          ready.push_back({stage, Kind::kWeight, i});
      }
    }
    if (ready.empty()) return table;
    const Action next = ready[random() % ready.size()];
    done.insert(next);
    table.ranks[static_cast<size_t>(table.owner[static_cast<size_t>(next.stage)])].push_back(next);
  }
}

struct Result {
  double total = 0;
  std::vector<Tensor> grads;
};

Result run_whole(int stages, int micro_batches, int seed) {
  Stages whole(stages, seed);
  Result result;
  for (int i = 0; i < micro_batches; ++i) {
    Tensor x;
    for (int stage = 0; stage < stages; ++stage) x = whole.forward(stage, i, x);
    result.total += x.item<double>();
    x.backward();
  }
  for (const auto& weight : whole.weights) result.grads.push_back(weight->grad);
  return result;
}

Result run_in_stages(const schedule::Table& table, int seed, const RunPair& run_pair = {}) {
  Result result;
  result.grads.resize(table.owner.size());
  const int ranks = static_cast<int>(table.ranks.size());
  test::run_ranks(ranks, [&](comm::World& world) {
    Stages own(table.stages(), seed);
    std::vector<int> members(static_cast<size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    std::vector<Parameter*> parameters;
    for (const auto& weight : own.weights) parameters.push_back(weight.get());
    const PipelineRunner runner(table, world.group("pp", members), parameters, run_pair);
    const Tensor total = runner.run(own.stage_forward(), {{.shape = {kRows, kWidth}, .dtype = at::kDouble}});
    if (total.defined()) result.total = total.item<double>();
    for (size_t stage = 0; stage < table.owner.size(); ++stage) {
      const bool here = table.owner[stage] == world.rank();
      EXPECT_EQ(own.weights[stage]->grad.defined(), here);
      EXPECT_EQ(own.weights[stage]->deferred, nullptr);
      if (here) result.grads[stage] = own.weights[stage]->grad;
    }
  });
  return result;
}

TEST(PipelineRunner, RandomTablesGiveTheGradientsOfTheWhole) {
  std::mt19937 random(17);
  for (int round = 0; round < 150; ++round) {
    // Through the file format, as a user would give it.
    const schedule::Table table = schedule::parse_csv(schedule::to_csv(random_table(random)), "a random table");
    SCOPED_TRACE(schedule::to_csv(table));
    const Result whole = run_whole(table.stages(), table.micro_batches, round), staged = run_in_stages(table, round);
    EXPECT_NEAR(staged.total, whole.total, 1e-9 * whole.total);
    for (size_t stage = 0; stage < whole.grads.size(); ++stage)
      EXPECT_CLOSE(staged.grads[stage], whole.grads[stage], 1e-9);
  }
}

// Which of the two begins, and on which thread, does not change a bit.
TEST(PipelineRunner, PairsMayRunInAnyOrder) {
  const schedule::Table table = schedule::dual_pipe_v({.ranks = 2, .stages_per_rank = 2, .micro_batches = 6});
  const Result expected = run_in_stages(table, 5);
  std::atomic<int> pairs = 0;
  const Result found = run_in_stages(table, 5, [&](const auto& forward, const auto& backward) {
    ++pairs;
    std::thread(backward).join();
    forward();
  });
  EXPECT_GT(pairs, 4);
  EXPECT_EQ(found.total, expected.total);
  for (size_t stage = 0; stage < expected.grads.size(); ++stage) {
    EXPECT_TRUE(at::equal(found.grads[stage], expected.grads[stage]));
  }
}

TEST(PipelineRunner, RandomlyDamagedTablesAreRefusedBeforeTheyRun) {
  std::mt19937 random(18);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    schedule::Table table = random_table(random);
    auto& list = table.ranks[random() % table.ranks.size()];
    switch (random() % 3) {
      case 0:
        std::swap(list[random() % list.size()], list[random() % list.size()]);
        break;
      case 1:
        list.erase(list.begin() + static_cast<int64_t>(random() % list.size()));
        break;
      default:
        list.push_back(list[random() % list.size()]);
    }
    try {
      const schedule::Table read = schedule::parse_csv(schedule::to_csv(table), "a damaged table");
      run_in_stages(read, round);  // a swap can leave it valid: then it runs to the end
    } catch (const std::exception&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(PipelineRunner, ForwardsAloneKeepNothing) {
  schedule::Table table{.micro_batches = 3, .owner = {0, 1}, .ranks = {{}, {}}, .backward = false};
  for (int i = 0; i < 3; ++i) {
    for (int stage : {0, 1}) table.ranks[static_cast<size_t>(stage)].push_back({.stage = stage, .micro_batch = i});
  }
  Result result;
  test::run_ranks(2, [&](comm::World& world) {
    const c10::AutoGradMode no_grad(false);
    Stages own(2, 3);
    const PipelineRunner runner(table, world.group("pp", {0, 1}), {own.weights[0].get(), own.weights[1].get()});
    const Tensor total = runner.run(own.stage_forward(), {{.shape = {kRows, kWidth}, .dtype = at::kDouble}});
    EXPECT_EQ(total.defined(), world.rank() == 1);
    if (total.defined()) result.total = total.item<double>();
    for (const auto& weight : own.weights) EXPECT_FALSE(weight->grad.defined());
  });
  EXPECT_NEAR(result.total, run_whole(2, 3, 3).total, 1e-9);
}

}  // namespace
}  // namespace titanium::parallel
