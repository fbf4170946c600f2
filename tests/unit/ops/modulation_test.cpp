#include "titanium/ops/modulation.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <c10/core/GradMode.h>

#include "tests/support/tensors.h"

namespace titanium::ops {
namespace {

using test::random_tensor;

// Shapes: B samples, S tokens, D model dim, M hidden columns.
constexpr int64_t kB = 2, kS = 3, kD = 8, kM = 12;

// A layer with random weights and, for the expectation, the same as leaves.
struct Layer {
  Layer(int64_t in, int64_t out) : weight("w", {out, in}), bias("b", {out}) {
    for (Parameter* parameter : {&weight, &bias}) {
      parameter->materialize(at::kFloat, at::kCPU);
      const c10::AutoGradMode no_grad(false);
      parameter->value.copy_(random_tensor(parameter->global_shape));
      parameter->value_changed();
    }
    weight_leaf = weight.value.detach().clone().requires_grad_();
    bias_leaf = bias.value.detach().clone().requires_grad_();
  }
  operator LinearLayer() { return {weight, &bias}; }
  Tensor expected(const Tensor& x) const { return at::linear(x, weight_leaf, bias_leaf); }
  void expect_grads() const {
    EXPECT_TRUE(weight.grad.allclose(weight_leaf.grad(), 1e-4, 1e-5));
    EXPECT_TRUE(bias.grad.allclose(bias_leaf.grad(), 1e-4, 1e-5));
  }
  Parameter weight, bias;
  Tensor weight_leaf, bias_leaf;
};

Tensor modulated(const Tensor& x, const Tensor& shift, const Tensor& scale) {
  return at::layer_norm(x, {kD}, {}, {}, 1e-6) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1);
}

// Runs both on leaves with the same values and compares the outputs and the gradients of all inputs.
void expect_same(const Tensors& inputs, const std::function<Tensor(const Tensors&)>& ours,
                 const std::function<Tensor(const Tensors&)>& definition) {
  Tensors found, expected;
  for (const Tensor& input : inputs) {
    found.push_back(input.detach().clone().requires_grad_());
    expected.push_back(input.detach().clone().requires_grad_());
  }
  const Tensor y = ours(found), z = definition(expected);
  EXPECT_TRUE(y.allclose(z, 1e-4, 1e-5));
  const Tensor grad = random_tensor(z.sizes().vec());
  y.backward(grad);
  z.backward(grad);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(found[i].grad().allclose(expected[i].grad(), 1e-4, 1e-5)) << "input " << i;
  }
}

TEST(Modulation, LinearWithBiasGivesWeightsGradientsWithoutOneOfItsInput) {
  Layer layer(kD, kM);
  const Tensor x = random_tensor({kB, kS, kD});
  linear_with_bias(x, layer).sum().backward();
  layer.expected(x).sum().backward();
  layer.expect_grads();
}

TEST(Modulation, EmbedVectorIsTwoLayersAroundSilu) {
  Layer in(kD, kM), out(kM, kM);
  expect_same(
      {random_tensor({kB, kD})}, [&](const Tensors& x) { return embed_vector(x[0], in, out); },
      [&](const Tensors& x) { return out.expected(at::silu(in.expected(x[0]))); });
  in.expect_grads();
  out.expect_grads();
}

TEST(Modulation, VectorsAreThePiecesOfTheirLayersAndMayGetNoGradient) {
  Layer first(kD, 3 * kD), second(kD, 3 * kD);
  const auto used = [](const Tensor& a, const Tensor& b) { return a.square() + b; };
  expect_same(
      {random_tensor({kB, kD})},
      [&](const Tensors& x) {
        const Tensors vectors = modulation_vectors(x[0], {first, second}, 3);
        return used(vectors.at(1), vectors.at(5));
      },
      [&](const Tensors& x) {
        const Tensor active = at::silu(x[0]);
        return used(first.expected(active).narrow(1, kD, kD), second.expected(active).narrow(1, 2 * kD, kD));
      });
  first.expect_grads();
  second.expect_grads();
}

TEST(Modulation, ModulatedLinearIsTheDefinition) {
  Layer layer(kD, kM);
  expect_same(
      {random_tensor({kB, kS, kD}), random_tensor({kB, kD}), random_tensor({kB, kD})},
      [&](const Tensors& x) { return modulated_linear(x[0], {x[1], x[2]}, layer); },
      [&](const Tensors& x) { return layer.expected(modulated(x[0], x[1], x[2])); });
  layer.expect_grads();
}

TEST(Modulation, GatedFeedForwardIsTheDefinition) {
  Layer in(kD, kM), out(kM, kD);
  expect_same(
      {random_tensor({kB, kS, kD}), random_tensor({kB, kD}), random_tensor({kB, kD}), random_tensor({kB, kD})},
      [&](const Tensors& x) { return gated_feed_forward(x[0], {x[1], x[2]}, x[3], in, out); },
      [&](const Tensors& x) {
        const Tensor hidden = at::gelu(in.expected(modulated(x[0], x[1], x[2])), "tanh");
        return x[0] + x[3].unsqueeze(1) * out.expected(hidden);
      });
  in.expect_grads();
  out.expect_grads();
}

TEST(Modulation, GatedOutputsAddToTheResidual) {
  Layer layer(kD, kD), joint(kD + kM, kD);
  const Tensor attended = random_tensor({kB, kS, 2, kD / 2}), gate = random_tensor({kB, kD}),
               residual = random_tensor({kB, kS, kD}), hidden = random_tensor({kB, kS, kM});
  expect_same(
      {attended, gate, residual}, [&](const Tensors& x) { return gated_linears(x[0], {{layer, x[1], x[2]}})[0]; },
      [&](const Tensors& x) { return x[2] + x[1].unsqueeze(1) * layer.expected(x[0].flatten(2)); });
  layer.expect_grads();
  expect_same(
      {attended, hidden, gate, residual},
      [&](const Tensors& x) { return gated_joint_output(x[0], {x[1], nullptr}, joint, x[2], x[3]); },
      [&](const Tensors& x) {
        return x[3] + x[2].unsqueeze(1) * joint.expected(at::cat({x[0].flatten(2), at::gelu(x[1], "tanh")}, 2));
      });
  joint.expect_grads();
}

TEST(Modulation, SquaredErrorIsScaledAndSummed) {
  const Tensor target = random_tensor({kB, kS});
  expect_same(
      {random_tensor({kB, kS})}, [&](const Tensors& x) { return squared_error(x[0], target, 0.25).to(at::kFloat); },
      [&](const Tensors& x) { return (x[0] - target).square().sum() * 0.25; });
}

}  // namespace
}  // namespace titanium::ops
