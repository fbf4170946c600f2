// Several tensors go through a unit, a recomputation and the stages of a pipeline as one does.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include "tests/support/tensors.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/nn/unit.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/parallel/pipeline_runner.h"

namespace titanium::parallel {
namespace {

constexpr int64_t kRows = 5, kWidth = 6;
constexpr int kMicroBatches = 3;

class CountingHook : public nn::UnitHook {
 public:
  void before_forward() override { ++forwards; }
  void before_backward() override { EXPECT_EQ(++befores, afters + 1); }
  void after_backward() override { EXPECT_EQ(++afters, befores); }
  int forwards = 0, befores = 0, afters = 0;
};

// Two stages that are a unit each; what they take and give is an image, a text and a number of the micro-batch.
class TwoStages {
 public:
  explicit TwoStages(bool recompute) : recompute_(recompute) {
    for (size_t stage = 0; stage < 2; ++stage) {
      Parameter& weight = weights[stage];
      weight.materialize(at::kDouble, at::kCPU);
      weight.value.detach().copy_(at::randn({kWidth, kWidth}, random_, at::kDouble));
      units_.emplace_back("stage", nn::UnitRole::kBlock, std::vector{&weight});
      units_.back().hooks.push_back(hooks[stage]);
    }
    for (int i = 0; i < 2 * kMicroBatches; ++i) {
      inputs_.push_back(at::randn({kRows, kWidth}, random_, at::kDouble).requires_grad_());
    }
  }

  Tensors run(int stage, int micro_batch, const Tensors& given) {
    const auto i = static_cast<size_t>(micro_batch);
    const Tensor number = at::full({1}, micro_batch + 1, at::kLong);
    const Tensors inputs = stage == 0 ? Tensors{inputs_[2 * i], inputs_[2 * i + 1], number} : given;
    EXPECT_EQ(inputs[2].item<int64_t>(), micro_batch + 1);
    const Tensors mixed = units_[static_cast<size_t>(stage)].run({inputs[0], inputs[1]}, [&](const Tensors& x) {
      const auto mix = [&weight = weights[static_cast<size_t>(stage)]](const Tensors& y) -> Tensors {
        const Tensor image = ops::linear(y[0].tanh(), weight) * y[1];
        return {image, ops::linear(image, weight) + y[1]};
      };
      return recompute_ ? ops::recompute(mix, x) : mix(x);
    });
    if (stage == 0) return {mixed[0], mixed[1], inputs[2]};
    return {(mixed[0] * mixed[1]).sum() * inputs[2].to(at::kDouble).sum()};
  }

  std::array<Parameter, 2> weights = {Parameter("first", {kWidth, kWidth}), Parameter("second", {kWidth, kWidth})};
  std::array<std::shared_ptr<CountingHook>, 2> hooks = {std::make_shared<CountingHook>(),
                                                        std::make_shared<CountingHook>()};

 private:
  bool recompute_;
  at::Generator random_ = at::detail::createCPUGenerator(3);
  std::deque<nn::Unit> units_;
  Tensors inputs_;
};

TEST(SeveralTensors, InAPipelineOfRecomputedUnitsGiveTheGradientsOfTheWhole) {
  TwoStages whole(/*recompute=*/false);
  double total = 0;
  for (int i = 0; i < kMicroBatches; ++i) {
    const Tensor loss = whole.run(1, i, whole.run(0, i, {}))[0];
    total += loss.item<double>();
    loss.backward();
  }

  schedule::Table table{.micro_batches = kMicroBatches, .owner = {0, 1}, .ranks = {{}, {}}};
  for (int i = 0; i < kMicroBatches; ++i) {
    for (int stage : {0, 1}) table.ranks[static_cast<size_t>(stage)].push_back({stage, schedule::Kind::kForward, i});
  }
  for (int i = 0; i < kMicroBatches; ++i) {
    for (int stage : {0, 1}) table.ranks[static_cast<size_t>(stage)].push_back({stage, schedule::Kind::kBackward, i});
  }
  const std::vector<HiddenStates> hidden = {{.shape = {kRows, kWidth}, .dtype = at::kDouble},
                                            {.shape = {kRows, kWidth}, .dtype = at::kDouble},
                                            {.shape = {1}, .dtype = at::kLong}};
  test::run_ranks(2, [&](comm::World& world) {
    TwoStages own(/*recompute=*/true);
    const PipelineRunner runner(table, world.group("pp", {0, 1}), {&own.weights[0], &own.weights[1]});
    const Tensor sum = runner.run([&](int stage, int i, const Tensors& x) { return own.run(stage, i, x); }, hidden);
    const auto here = static_cast<size_t>(world.rank());
    EXPECT_CLOSE(own.weights[here].grad, whole.weights[here].grad, 1e-12);
    EXPECT_EQ(own.hooks[here]->forwards, kMicroBatches);
    EXPECT_EQ(own.hooks[here]->befores, kMicroBatches);
    EXPECT_EQ(own.hooks[here]->afters, kMicroBatches);
    EXPECT_EQ(sum.defined(), world.rank() == 1);
    if (sum.defined()) {
      EXPECT_NEAR(sum.item<double>(), total, 1e-12 * std::abs(total));
    }
  });
}

}  // namespace
}  // namespace titanium::parallel
