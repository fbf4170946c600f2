// What all optimizers have in common: groups of parameters, several optimizers as one.
#include "titanium/optim/optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "titanium/optim/adam.h"

namespace titanium::optim {
namespace {

std::unique_ptr<Parameter> parameter_of(const std::string& fqn, double value) {
  auto parameter = std::make_unique<Parameter>(fqn, Shape{2, 3});
  parameter->materialize(at::kFloat, at::kCPU);
  parameter->value.detach().fill_(value);
  return parameter;
}

double first(const Parameter& parameter) { return parameter.value.flatten()[0].item<double>(); }

void set_grads(const std::vector<Parameter*>& parameters, double grad) {
  for (Parameter* parameter : parameters) parameter->grad = at::full({2, 3}, grad, at::kFloat);
}

TEST(Optimizer, AGroupHasItsOwnDecayAndLearningRate) {
  const auto plain = parameter_of("w", 4), still = parameter_of("norm", 4), slow = parameter_of("embedding", 4);
  Adam adam(std::vector<AdamGroup>{{{plain.get()}, {.weight_decay = 0.1}},
                                   {{still.get()}, {.weight_decay = 0}},
                                   {{slow.get()}, {.weight_decay = 0.1}, /*lr_factor=*/0.25}});
  adam.materialize();
  set_grads(adam.parameters(), 0);
  adam.step(0.5);
  EXPECT_NEAR(first(*plain), 4 * (1 - 0.5 * 0.1), 1e-6);
  EXPECT_EQ(first(*still), 4);
  EXPECT_NEAR(first(*slow), 4 * (1 - 0.125 * 0.1), 1e-6);
}

TEST(Optimizer, GroupsWithEqualOptionsGiveTheBitsOfOneGroup) {
  std::vector<std::unique_ptr<Parameter>> one, two;
  std::vector<Parameter*> all;
  for (int i = 0; i < 2; ++i) {
    one.push_back(parameter_of("w" + std::to_string(i), 1 + i));
    two.push_back(parameter_of("w" + std::to_string(i), 1 + i));
    all.push_back(one.back().get());
  }
  Adam together(all, {}), apart(std::vector<AdamGroup>{{{two[1].get()}, {}}, {{two[0].get()}, {}}});
  for (Adam* adam : {&together, &apart}) {
    adam->materialize();
    for (int step = 1; step < 4; ++step) {
      set_grads(adam->parameters(), 0.3 * step);
      adam->step(0.01, at::full({}, 2.0, at::kDouble), 1.0);
    }
  }
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(one[i]->value.equal(two[i]->value));
}

TEST(Optimizer, SeveralAreOne) {
  const auto a = parameter_of("a", 1), b = parameter_of("b", 1);
  std::vector<std::unique_ptr<Optimizer>> parts;
  parts.push_back(std::make_unique<Adam>(std::vector<Parameter*>{a.get()}, AdamOptions{.weight_decay = 0}));
  parts.push_back(std::make_unique<Adam>(std::vector<Parameter*>{b.get()}, AdamOptions{.weight_decay = 0.5}));
  const auto both = together(std::move(parts));
  both->materialize();
  EXPECT_EQ(both->parameters(), (std::vector<Parameter*>{a.get(), b.get()}));
  EXPECT_EQ(both->state().size(), 6);
  EXPECT_EQ(both->state_bytes(*b, at::kFloat), 2 * 6 * 4);
  EXPECT_EQ(both->state_bytes(*b, at::kBFloat16), 2 * 6 * 2);
  set_grads({a.get(), b.get()}, 1);
  both->step_some({b.get()}, 0.1);
  EXPECT_EQ(first(*a), 1);
  EXPECT_NEAR(first(*b), 1 - 0.05 - 0.1, 1e-6);
  both->step(0.1);
  EXPECT_NEAR(first(*a), 0.9, 1e-6);
  both->zero_grad();
  EXPECT_FALSE(a->grad.defined() || b->grad.defined());
}

TEST(Optimizer, OptionsAreThoseOfTheParametersGroup) {
  const auto plain = parameter_of("w", 4), slow = parameter_of("norm", 4);
  const Adam adam(std::vector<AdamGroup>{
      {{plain.get()}, {}}, {{slow.get()}, {.beta1 = 0.5, .weight_decay = 0, .implementation = "foreach"}, 0.5}});
  const auto option = [&](const Parameter& parameter, const std::string& name) {
    for (const auto& [key, value] : adam.options_of(parameter, {.now = 0.2, .initial = 0.4})) {
      if (key == name) return value;
    }
    return OptionValue("missing");
  };
  EXPECT_EQ(option(*plain, "lr"), OptionValue(0.2));
  EXPECT_EQ(option(*plain, "fused"), OptionValue(true));
  EXPECT_EQ(option(*plain, "weight_decay"), OptionValue(0.1));
  EXPECT_EQ(option(*slow, "lr"), OptionValue(0.1));
  EXPECT_EQ(option(*slow, "initial_lr"), OptionValue(0.2));
  EXPECT_EQ(option(*slow, "betas"), OptionValue(std::vector{0.5, 0.95}));
  EXPECT_EQ(option(*slow, "weight_decay"), OptionValue(0.0));
  EXPECT_EQ(option(*slow, "fused"), OptionValue(false));
  EXPECT_EQ(option(*slow, "foreach"), OptionValue(true));
}

}  // namespace
}  // namespace titanium::optim
