#include "titanium/nn/unit.h"

#include <ATen/ops/ones.h>

#include "titanium/tensor/trace_scope.h"

namespace titanium::nn {
namespace {

using Events = std::vector<std::string>;

class Recorder : public UnitHook {
 public:
  Recorder(std::string name, Events& events) : name_(std::move(name)), events_(events) {}
  void before_forward() override { events_.push_back(name_ + " before forward"); }
  void after_forward() override { events_.push_back(name_ + " after forward"); }
  void before_backward() override { events_.push_back(name_ + " before backward"); }
  void after_backward() override { events_.push_back(name_ + " after backward"); }

 private:
  std::string name_;
  Events& events_;
};

// Runs the unit forward and backward once.
void run(const Unit& unit, Events& events) {
  const Tensor x = at::ones({2}).requires_grad_(true);
  const Tensor y = unit.run(x, [&](const Tensor& input) {
    events.push_back("unit");
    return input * 3;
  });
  y.sum().backward();
  EXPECT_EQ(x.grad()[0].item<float>(), 3);
}

TEST(UnitHooks, EncloseTheUnitLikeBrackets) {
  Events events;
  Unit unit("block", UnitRole::kBlock, {});
  unit.enclose(std::make_shared<Recorder>("middle", events));
  unit.enclose(std::make_shared<Recorder>("outer", events));
  unit.hooks.push_back(std::make_shared<Recorder>("inner", events));
  run(unit, events);
  EXPECT_EQ(events, (Events{"outer before forward", "middle before forward", "inner before forward", "unit",
                            "inner after forward", "middle after forward", "outer after forward",
                            "outer before backward", "middle before backward", "inner before backward",
                            "inner after backward", "middle after backward", "outer after backward"}));
}

TEST(UnitHooks, AHookThatOverridesNothingChangesNothing) {
  Events events;
  Unit unit("block", UnitRole::kBlock, {});
  unit.enclose(std::make_shared<UnitHook>());
  run(unit, events);
  EXPECT_EQ(events, Events{"unit"});
}

TEST(UnitHooks, ABackwardCallsTheHooksOfItsForward) {
  Events events;
  Unit unit("block", UnitRole::kBlock, {});
  unit.enclose(std::make_shared<Recorder>("hook", events));
  const Tensor x = at::ones({2}).requires_grad_(true);
  const Tensor y = unit.run(x, [](const Tensor& input) { return input * 3; });
  unit.hooks.clear();
  y.sum().backward();
  EXPECT_EQ(events.back(), "hook after backward");
}

// The place of each call of a node's backward while somebody looks.
TEST(UnitTraces, TheBackwardOfAnOperatorIsARangeInItsUnit) {
  TraceScope::set_profiled(true);
  std::vector<TraceScope::Place> places;
  const Unit unit("layers.3", UnitRole::kBlock, {});
  const Tensor x = at::ones({2}).requires_grad_(true);
  const Tensor y = unit.run(x, [&](const Tensor& input) {
    const TraceScope scope("attention");
    return ops::on_backward(ops::Tensors{input}, [&] { places.push_back(TraceScope::current()); })[0];
  });
  y.sum().backward();
  TraceScope::set_profiled(false);
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].part, "layers.3");
  EXPECT_EQ(places[0].range, "attention backward");
}

}  // namespace
}  // namespace titanium::nn
