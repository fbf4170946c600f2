#include "titanium/optim/adam.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "titanium/optim/grad_norm.h"

namespace titanium::optim {
namespace {

std::unique_ptr<Parameter> parameter_of(const std::string& fqn, const std::vector<double>& values,
                                        Dtype dtype = at::kFloat) {
  auto parameter = std::make_unique<Parameter>(fqn, Shape{static_cast<int64_t>(values.size())});
  parameter->materialize(dtype, at::kCPU);
  parameter->value.detach().copy_(at::tensor(values, at::kDouble));
  return parameter;
}

double element(const Tensor& tensor, int64_t index) { return tensor.flatten()[index].item<double>(); }

TEST(Adam, ConstantGradientMovesEveryWeightByTheLearningRateEachStep) {
  const auto p = parameter_of("w", {1.0, -2.0, 0.5});
  Adam adam({p.get()}, {.weight_decay = 0.0});
  adam.materialize();
  for (int i = 0; i < 5; ++i) {
    p->grad = at::tensor({3.0F, -0.01F, 100.0F});
    adam.step(0.01);
  }
  EXPECT_NEAR(element(p->value, 0), 1.0 - 0.05, 1e-6);
  EXPECT_NEAR(element(p->value, 1), -2.0 + 0.05, 1e-6);
  EXPECT_NEAR(element(p->value, 2), 0.5 - 0.05, 1e-6);
}

TEST(Adam, DecoupledDecayShrinksWeightsWithoutGradientsHelp) {
  const auto p = parameter_of("w", {4.0, -8.0});
  Adam adam({p.get()}, {.weight_decay = 0.1, .decoupled = true});
  adam.materialize();
  p->grad = at::zeros_like(p->value.detach());
  adam.step(0.5);
  EXPECT_NEAR(element(p->value, 0), 4.0 * (1 - 0.5 * 0.1), 1e-6);
  EXPECT_NEAR(element(p->value, 1), -8.0 * (1 - 0.5 * 0.1), 1e-6);
}

TEST(Adam, CoupledDecayActsAsGradient) {
  const auto p = parameter_of("w", {4.0, -8.0});
  Adam adam({p.get()}, {.weight_decay = 0.1, .decoupled = false});
  adam.materialize();
  p->grad = at::zeros_like(p->value.detach());
  adam.step(0.5);  // Adam's first step has the length of the learning rate, whatever the gradient
  EXPECT_NEAR(element(p->value, 0), 4.0 - 0.5, 1e-6);
  EXPECT_NEAR(element(p->value, 1), -8.0 + 0.5, 1e-6);
}

TEST(Adam, ParametersWithoutGradientStayAndDoNotCountTheStep) {
  const auto with = parameter_of("with", {1.0});
  const auto without = parameter_of("without", {1.0});
  Adam adam({without.get(), with.get()}, {});
  adam.materialize();
  with->grad = at::tensor({1.0F});
  adam.step(0.1);
  EXPECT_EQ(element(without->value, 0), 1.0);
  EXPECT_LT(element(with->value, 0), 1.0);
  for (const StateTensor& state : adam.state()) {
    if (state.name == "step") {
      EXPECT_EQ(state.tensor.item<float>(), state.parameter == with.get() ? 1.0F : 0.0F) << state.parameter->fqn;
    }
  }
}

TEST(Adam, UpdateInvalidatesTheCastCopy) {
  const auto p = parameter_of("w", {1.0});
  EXPECT_EQ(element(p->in(at::kBFloat16), 0), 1.0);
  Adam adam({p.get()}, {});
  adam.materialize();
  p->grad = at::tensor({1.0F});
  adam.step(0.5);
  EXPECT_NEAR(element(p->in(at::kBFloat16), 0), 0.45, 0.01);
}

TEST(Adam, MixedDtypesAreUpdatedTogetherAndMomentsKeepTheDtype) {
  const auto full = parameter_of("full", {1.0}, at::kFloat);
  const auto half = parameter_of("half", {1.0}, at::kBFloat16);
  Adam adam({full.get(), half.get()}, {.weight_decay = 0.0});
  adam.materialize();
  full->grad = at::ones_like(full->value.detach());
  half->grad = at::ones_like(half->value.detach());
  adam.step(0.25);
  EXPECT_NEAR(element(full->value, 0), 0.75, 1e-6);
  EXPECT_NEAR(element(half->value, 0), 0.75, 0.004);
  for (const StateTensor& state : adam.state()) {
    EXPECT_EQ(state.tensor.scalar_type(), state.name == "step" ? at::kFloat : state.parameter->value.scalar_type());
  }
}

TEST(Adam, GradientsOfAnyStrideAreRead) {
  Parameter p("w", {2, 3});
  p.materialize(at::kFloat, at::kCPU);
  p.value.detach().zero_();
  Adam adam({&p}, {.weight_decay = 0.0});
  adam.materialize();
  p.grad = at::tensor({1.0F, -1.0F, 1.0F, 1.0F, 1.0F, -1.0F}).reshape({3, 2}).t();
  adam.step(1.0);
  EXPECT_TRUE(p.value.detach().sign().equal(-p.grad.sign()));
}

TEST(Adam, StepWithANormEqualsClippingBefore) {
  for (const double max_norm : {0.5, 100.0}) {
    const auto clipped = parameter_of("w", {1.0, 2.0}), at_once = parameter_of("w", {1.0, 2.0});
    Adam first({clipped.get()}, {}), second({at_once.get()}, {});
    first.materialize();
    second.materialize();
    for (int i = 0; i < 3; ++i) {
      clipped->grad = at::tensor({3.0F, -4.0F});
      at_once->grad = clipped->grad.clone();
      const Tensor norm = total_norm(std::vector{clipped.get()});
      clip_grads(std::vector{clipped.get()}, max_norm, norm);
      first.step(0.1);
      second.step(0.1, norm, max_norm);
    }
    EXPECT_TRUE(at_once->value.equal(clipped->value));
    EXPECT_TRUE(second.state()[1].tensor.equal(first.state()[1].tensor));
  }
}

TEST(Adam, ANormThatIsNotFiniteSkipsTheStep) {
  const auto p = parameter_of("w", {1.0, 2.0});
  Adam adam({p.get()}, {});
  adam.materialize();
  p->grad = at::tensor({1.0F, 1.0F});
  adam.step(0.1, at::scalar_tensor(1.0, at::kDouble));
  const Tensor before = p->value.detach().clone();
  for (const double norm : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    p->grad = at::tensor({1.0F, 1.0F});
    adam.step(0.1, at::scalar_tensor(norm, at::kDouble), 1.0);
  }
  EXPECT_TRUE(p->value.equal(before));
  EXPECT_EQ(adam.state()[2].tensor.item<float>(), 1.0F);
}

TEST(Adam, StateWrittenFromOutsideContinuesTheRun) {
  const auto whole = parameter_of("w", {1.0, 2.0});
  const auto first = parameter_of("w", {1.0, 2.0});
  const auto step = [](Adam& adam, Parameter& p, float gradient) {
    p.grad = at::tensor({gradient, -2 * gradient});
    adam.step(0.1);
  };
  Adam uninterrupted({whole.get()}, {});
  uninterrupted.materialize();
  for (int i = 0; i < 6; ++i) step(uninterrupted, *whole, static_cast<float>(i) - 2.5F);

  Adam before({first.get()}, {});
  before.materialize();
  for (int i = 0; i < 3; ++i) step(before, *first, static_cast<float>(i) - 2.5F);
  Adam after({first.get()}, {});
  after.materialize();
  const auto saved = before.state();
  const auto loaded = after.state();
  ASSERT_EQ(saved.size(), loaded.size());
  for (size_t i = 0; i < saved.size(); ++i) loaded[i].tensor.copy_(saved[i].tensor);
  for (int i = 3; i < 6; ++i) step(after, *first, static_cast<float>(i) - 2.5F);
  EXPECT_TRUE(first->value.equal(whole->value));
}

}  // namespace
}  // namespace titanium::optim
