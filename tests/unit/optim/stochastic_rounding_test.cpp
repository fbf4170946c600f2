// Adam with AdamOptions::rounding_seed.
#include "titanium/kernels/stochastic_rounding.h"

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "titanium/ops/init.h"
#include "titanium/optim/adam.h"

namespace titanium::optim {
namespace {

using ParameterPtr = std::unique_ptr<Parameter>;

// A bf16 parameter of which `shard` is here, with the elements of `whole`.
ParameterPtr shard_of(const Tensor& whole, const Box& shard, const std::string& fqn = "w") {
  auto parameter = std::make_unique<Parameter>(fqn, whole.sizes().vec());
  parameter->part = parameter->shard = shard;
  parameter->materialize(at::kBFloat16, at::kCPU);
  parameter->value.detach().copy_(box_of(whole, shard));
  return parameter;
}

ParameterPtr parameter_of(const Tensor& whole, const std::string& fqn = "w") {
  return shard_of(whole, {Shape(static_cast<size_t>(whole.dim()), 0), whole.sizes().vec()}, fqn);
}

// Without memory of earlier steps: every update of an element with gradient 1 subtracts the learning rate.
AdamOptions memoryless(std::optional<uint64_t> seed) {
  return {.beta1 = 0, .beta2 = 0, .eps = 0, .weight_decay = 0, .rounding_seed = seed};
}

// 1 becomes 0.999 as often as rounding to 0.99609375 and to 1 has to make it.
Tensor rounded(Adam& adam, Parameter& parameter) {
  parameter.value.detach().fill_(1);
  parameter.grad = at::ones_like(parameter.value.detach());
  adam.step(1e-3);
  return parameter.value.detach().clone();
}

Tensor rounded(uint64_t seed, const std::string& fqn = "w") {
  const ParameterPtr parameter = parameter_of(at::full({1000}, 1.0), fqn);
  Adam adam({parameter.get()}, memoryless(seed));
  adam.materialize();
  return rounded(adam, *parameter);
}

TEST(StochasticAdam, UpdatesBelowHalfAUnitCountOnAverage) {
  const auto mean_after_steps = [](std::optional<uint64_t> seed) {
    const ParameterPtr p = parameter_of(at::full({4096}, 1.0));
    Adam adam({p.get()}, {.weight_decay = 0, .rounding_seed = seed});
    adam.materialize();
    for (int i = 0; i < 50; ++i) {
      p->grad = at::ones_like(p->value.detach());
      adam.step(1e-4);
    }
    return p->value.to(at::kDouble).mean().item<double>();
  };
  EXPECT_EQ(mean_after_steps(std::nullopt), 1.0);
  EXPECT_NEAR(mean_after_steps(1), 1 - 50 * 1e-4, 4e-4);
}

TEST(StochasticAdam, TheBitsAreThoseOfTheDefinition) {
  const Tensor values = rounded(5);
  const uint64_t key = ops::parameter_key("w", 5) + 1;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const uint64_t bits = kernels::random_bits(key, static_cast<uint64_t>(i) / 4);
    const uint16_t expected = kernels::round_stochastically(1.0F - 1e-3F, kernels::rounding_bits(bits, i));
    ASSERT_EQ(values.const_data_ptr<c10::BFloat16>()[i].x, expected) << i;
  }
}

TEST(StochasticAdam, EveryParameterStepAndSeedHasItsOwnBitsAndTheSameAgain) {
  EXPECT_TRUE(rounded(5).equal(rounded(5)));
  EXPECT_FALSE(rounded(5).equal(rounded(6)));
  EXPECT_FALSE(rounded(5).equal(rounded(5, "v")));
  const ParameterPtr p = parameter_of(at::full({1000}, 1.0));
  Adam adam({p.get()}, memoryless(5));
  adam.materialize();
  const Tensor first = rounded(adam, *p);
  EXPECT_TRUE(first.equal(rounded(5)));
  EXPECT_FALSE(rounded(adam, *p).equal(first));
}

TEST(StochasticAdam, ShardsRoundAsTheWholeDoes) {
  const Tensor matrix = test::random_tensor({13, 24}), vector = test::random_tensor({40});
  const std::vector<std::pair<Tensor, Box>> cuts = {{matrix, {{5, 0}, {4, 24}}},
                                                    {matrix, {{0, 8}, {13, 8}}},
                                                    {matrix, {{0, 7}, {13, 5}}},
                                                    {matrix, {{6, 12}, {7, 12}}},
                                                    {vector, {{17}, {13}}}};
  for (const auto& [values, cut] : cuts) {
    const ParameterPtr whole = parameter_of(values), shard = shard_of(values, cut);
    Adam of_whole({whole.get()}, {.rounding_seed = 3}), of_shard({shard.get()}, {.rounding_seed = 3});
    of_whole.materialize();
    of_shard.materialize();
    for (int step = 0; step < 4; ++step) {
      whole->grad = test::random_tensor(values.sizes().vec()).to(at::kBFloat16);
      shard->grad = box_of(whole->grad, cut);
      of_whole.step(1e-3);
      of_shard.step(1e-3);
    }
    EXPECT_TRUE(shard->value.equal(box_of(whole->value, cut))) << cut.offset << cut.shape;
  }
}

TEST(StochasticAdam, FullPrecisionAndMomentsAreLeftAlone) {
  const Tensor values = test::random_tensor({200}), grad = test::random_tensor({200});
  std::vector<std::unique_ptr<Parameter>> full;
  std::vector<Tensor> moments;
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), std::optional<uint64_t>(9)}) {
    full.push_back(std::make_unique<Parameter>("full", Shape{200}));
    full.back()->materialize(at::kFloat, at::kCPU);
    full.back()->value.detach().copy_(values);
    full.back()->grad = grad.to(at::kFloat);
    const ParameterPtr half = parameter_of(values);
    half->grad = grad.to(at::kBFloat16);
    Adam adam({full.back().get(), half.get()}, {.rounding_seed = seed});
    adam.materialize();
    adam.step(1e-3);
    moments.push_back(adam.state()[3].tensor);
  }
  EXPECT_TRUE(full[0]->value.equal(full[1]->value));
  EXPECT_TRUE(moments[0].equal(moments[1]));
}

TEST(StochasticAdam, CoupledDecayIsPartOfTheGradient) {
  const ParameterPtr p = parameter_of(at::full({100}, 4.0));
  Adam adam({p.get()}, {.beta1 = 0.875, .weight_decay = 0.5, .decoupled = false, .rounding_seed = 2});
  adam.materialize();
  p->grad = at::zeros_like(p->value.detach());
  adam.step(0.125);
  const StateTensor first = adam.state().front();
  EXPECT_EQ(first.name, "exp_avg");
  EXPECT_TRUE(first.tensor.equal(at::full_like(first.tensor, 0.125 * 0.5 * 4)));
}

TEST(StochasticAdam, ASkippedStepLeavesNoTrace) {
  const auto train = [](bool skips) {
    const ParameterPtr p = parameter_of(at::full({1000}, 1.0));
    Adam adam({p.get()}, {.rounding_seed = 2});
    adam.materialize();
    for (int i = 0; i < 3; ++i) {
      p->grad = at::ones_like(p->value.detach());
      if (skips && i == 1) adam.step(1e-3, at::scalar_tensor(NAN, at::kDouble), 1.0);
      adam.step(1e-3, at::scalar_tensor(0.5, at::kDouble), 1.0);
    }
    return p->value.detach().clone();
  };
  EXPECT_TRUE(train(true).equal(train(false)));
}

TEST(StochasticAdam, GradientsAreClippedWhileTheyAreRead) {
  const ParameterPtr p = parameter_of(at::full({2}, 1.0));
  Adam adam({p.get()}, {.rounding_seed = 2});
  adam.materialize();
  p->grad = at::full_like(p->value.detach(), 4.0);
  adam.step(1e-3, at::scalar_tensor(4.0, at::kDouble), 1.0);
  EXPECT_NEAR(adam.state()[0].tensor[0].item<double>(), 0.1, 1e-3);
  EXPECT_EQ(p->grad[0].item<double>(), 4.0);
}

TEST(StochasticAdam, StateWrittenFromOutsideContinuesTheRun) {
  const auto step = [](Adam& adam, Parameter& p, int number) {
    p.grad = at::full_like(p.value.detach(), number - 2.5);
    adam.step(1e-3);
  };
  const ParameterPtr whole = parameter_of(at::full({500}, 1.0)), resumed = parameter_of(at::full({500}, 1.0));
  Adam uninterrupted({whole.get()}, {.rounding_seed = 4});
  uninterrupted.materialize();
  for (int i = 0; i < 6; ++i) step(uninterrupted, *whole, i);
  Adam before({resumed.get()}, {.rounding_seed = 4}), after({resumed.get()}, {.rounding_seed = 4});
  before.materialize();
  after.materialize();
  for (int i = 0; i < 3; ++i) step(before, *resumed, i);
  const auto saved = before.state(), loaded = after.state();
  for (size_t i = 0; i < saved.size(); ++i) loaded[i].tensor.copy_(saved[i].tensor);
  for (int i = 3; i < 6; ++i) step(after, *resumed, i);
  EXPECT_TRUE(resumed->value.equal(whole->value));
}

}  // namespace
}  // namespace titanium::optim
