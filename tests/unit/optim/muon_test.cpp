#include "titanium/optim/muon.h"

#include <ATen/Context.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "tests/support/tensors.h"
#include "titanium/base/error.h"

namespace titanium::optim {
namespace {

// What the iteration makes of the singular values, taken apart by a decomposition that has nothing to do with it.
Tensor orthogonal_by_svd(const Tensor& matrix, int64_t steps) {
  const auto [u, s, vh] = at::linalg_svd(matrix.to(at::kDouble), /*full_matrices=*/false);
  Tensor values = s / s.square().sum().sqrt().clamp_min(1e-7);
  for (int64_t i = 0; i < steps; ++i) {
    values = 3.4445 * values - 4.7750 * values.pow(3) + 2.0315 * values.pow(5);
  }
  return u.mm(values.diag()).mm(vh);
}

TEST(NewtonSchulz, ActsOnTheSingularValuesAlone) {
  at::manual_seed(1);
  for (const auto& [rows, columns] : {std::pair{24, 24}, {16, 40}, {40, 16}, {1, 9}, {9, 1}}) {
    const Tensor matrix = test::random_tensor({rows, columns});
    const Tensor expected = orthogonal_by_svd(matrix, 5);
    for (const auto& [dtype, limit] : {std::pair{at::kDouble, 1e-10}, {at::kFloat, 1e-4}, {at::kBFloat16, 0.1}}) {
      const Tensor found = orthogonalize(matrix.to(dtype), {.dtype = dtype});
      EXPECT_EQ(found.scalar_type(), dtype);
      SCOPED_TRACE(fmt::format("{} x {} {}", rows, columns, dtype_name(dtype)));
      EXPECT_CLOSE(found, expected, limit);
    }
  }
}

TEST(NewtonSchulz, BringsSingularValuesNearOne) {
  at::manual_seed(2);
  const Tensor matrix = test::random_tensor({32, 48}).mul_(1e3);
  const auto values = std::get<1>(at::linalg_svd(orthogonalize(matrix, {.dtype = at::kFloat})));
  EXPECT_GT(values.min().item<double>(), 0.5);
  EXPECT_LT(values.max().item<double>(), 1.3);
}

TEST(NewtonSchulz, AMatrixOfZerosStaysOne) {
  EXPECT_EQ(orthogonalize(at::zeros({4, 6}), {}).abs().max().item<double>(), 0);
}

std::unique_ptr<Parameter> parameter_of(const Shape& shape, Dtype dtype = at::kFloat) {
  auto parameter = std::make_unique<Parameter>("layers.0.w", shape);
  parameter->materialize(dtype, at::kCPU);
  parameter->value.detach().copy_(test::random_tensor(shape));
  return parameter;
}

// The definition in fp64, matrix by matrix.
struct Reference {
  Tensor value, buffer;
  void step(const Tensor& grad, double lr, double factor, const MuonOptions& options) {
    const double mu = options.momentum;
    buffer = mu * buffer + (1 - mu) * grad;
    const Tensor direction = options.nesterov ? (1 - mu) * grad + mu * buffer : buffer;
    value = value * (1 - lr * options.weight_decay) - lr * factor * orthogonal_by_svd(direction, 5);
  }
};

void expect_reference(const Shape& shape, const MuonOptions& options, double factor) {
  at::manual_seed(3);
  const auto parameter = parameter_of(shape);
  Muon muon({{{parameter.get()}, options}});
  muon.materialize();
  const int64_t matrices = volume(shape) / (shape[shape.size() - 2] * shape.back());
  const Shape stacked = {matrices, shape[shape.size() - 2], shape.back()};
  std::vector<Reference> expected;
  for (int64_t i = 0; i < matrices; ++i) {
    const Tensor value = parameter->value.detach().reshape(stacked)[i].to(at::kDouble);
    expected.push_back({value, at::zeros(value.sizes(), at::kDouble)});
  }
  for (int step = 0; step < 5; ++step) {
    const Tensor grad = test::random_tensor(shape);
    parameter->grad = grad.clone();
    for (int64_t i = 0; i < matrices; ++i) {
      // A norm of 4 that is clipped to 1.
      expected[i].step(grad.reshape(stacked)[i].to(at::kDouble) / (4 + 1e-6), 0.1 / (1 + step), factor, options);
    }
    muon.step(0.1 / (1 + step), at::scalar_tensor(4.0, at::kDouble), 1.0);
  }
  for (int64_t i = 0; i < matrices; ++i) {
    EXPECT_CLOSE(parameter->value.detach().reshape(stacked)[i], expected[i].value, 1e-5);
    EXPECT_CLOSE(muon.state()[0].tensor.reshape(stacked)[i], expected[i].buffer, 1e-5);
  }
}

TEST(Muon, FollowsItsDefinition) {
  const NewtonSchulzOptions exact = {.dtype = at::kFloat};
  expect_reference({12, 20}, {.newton_schulz = exact}, 0.2 * std::sqrt(20.0));
  expect_reference({20, 12}, {.scale = MuonScale::kOriginal, .newton_schulz = exact}, std::sqrt(20.0 / 12));
  expect_reference({12, 20}, {.scale = MuonScale::kOriginal, .newton_schulz = exact}, 1);
  expect_reference({12, 20}, {.momentum = 0.5, .nesterov = false, .weight_decay = 0.3, .newton_schulz = exact},
                   0.2 * std::sqrt(20.0));
}

TEST(Muon, AStackIsManyMatrices) {
  expect_reference({3, 10, 6}, {.newton_schulz = {.dtype = at::kFloat}}, 0.2 * std::sqrt(10.0));
  expect_reference({2, 2, 5, 6}, {.newton_schulz = {.dtype = at::kFloat}}, 0.2 * std::sqrt(6.0));
}

TEST(Muon, MatricesOfAStackAreNumberedRowByRow) {
  const Parameter parameter("w", {2, 3, 4, 5});
  const std::vector<Box> matrices = matrices_of(parameter);
  ASSERT_EQ(matrices.size(), 6);
  EXPECT_EQ(matrices[0], (Box{{0, 0, 0, 0}, {1, 1, 4, 5}}));
  EXPECT_EQ(matrices[4], (Box{{1, 1, 0, 0}, {1, 1, 4, 5}}));
  EXPECT_EQ(matrices_of(Parameter("w", {4, 5})), (std::vector{Box{{0, 0}, {4, 5}}}));
}

TEST(Muon, NothingChangesWhenTheNormIsNotFinite) {
  for (const double norm : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const auto parameter = parameter_of({6, 4});
    Muon muon({{{parameter.get()}, {}}});
    muon.materialize();
    parameter->grad = test::random_tensor({6, 4});
    muon.step(0.1);
    const Tensor value = parameter->value.detach().clone(), buffer = muon.state()[0].tensor.clone();
    parameter->grad = at::full({6, 4}, norm, at::kFloat);
    muon.step(0.1, at::scalar_tensor(norm, at::kDouble), 1.0);
    EXPECT_TRUE(parameter->value.equal(value));
    EXPECT_TRUE(muon.state()[0].tensor.equal(buffer));
    parameter->grad = test::random_tensor({6, 4});
    muon.step(0.1, at::scalar_tensor(1.0, at::kDouble), 1.0);
    EXPECT_FALSE(parameter->value.equal(value));
  }
}

TEST(Muon, WeightsInBfloat16AreRoundedOnce) {
  const auto narrow = parameter_of({8, 8}, at::kBFloat16), wide = parameter_of({8, 8});
  wide->value.detach().copy_(narrow->value.detach());
  Muon muon({{{narrow.get(), wide.get()}, {.newton_schulz = {.dtype = at::kFloat}}}});
  muon.materialize();
  EXPECT_EQ(muon.state()[0].tensor.scalar_type(), at::kBFloat16);
  wide->grad = test::random_tensor({8, 8}).to(at::kBFloat16).to(at::kFloat);
  narrow->grad = wide->grad.to(at::kBFloat16);
  muon.step(0.01);
  EXPECT_CLOSE(narrow->value, wide->value, 4e-3);  // half a unit in the last place, and that of the momentum
}

TEST(Muon, TellsItsStateAndOptionsAsTorchDoes) {
  const auto parameter = parameter_of({8, 4});
  Muon muon({{{parameter.get()}, {.weight_decay = 0.2}, /*lr_factor=*/0.5}});
  muon.materialize();
  ASSERT_EQ(muon.state().size(), 1);
  EXPECT_EQ(muon.state()[0].name, "momentum_buffer");
  EXPECT_EQ(muon.state_bytes(*parameter, at::kFloat), 8 * 4 * 4);
  const NamedOptions expected = {{"lr", 0.5},
                                 {"weight_decay", 0.2},
                                 {"momentum", 0.95},
                                 {"nesterov", true},
                                 {"ns_coefficients", std::vector{3.4445, -4.7750, 2.0315}},
                                 {"eps", 1e-7},
                                 {"ns_steps", int64_t{5}},
                                 {"adjust_lr_fn", "match_rms_adamw"},
                                 {"initial_lr", 1.0}};
  EXPECT_EQ(muon.options_of(*parameter, {.now = 1, .initial = 2}), expected);
}

TEST(Muon, AnUnknownScaleIsRefused) {
  EXPECT_EQ(parse_muon_scale("original"), MuonScale::kOriginal);
  try {
    parse_muon_scale("adam");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "Muon's scale \"adam\" is unknown. Use original or match_rms_adamw.");
  }
}

}  // namespace
}  // namespace titanium::optim
