// A tiny Flux on the GPU against the CPU in fp32, from the same weights and inputs; and noise, bit by bit.
#include <ATen/ops/equal.h>

#include "tests/gpu/gpu_test.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_flux.h"
#include "titanium/models/flux/model.h"
#include "titanium/ops/counter_normal.h"
#include "titanium/ops/init.h"

namespace titanium::models::flux {
namespace {

using GpuFlux = test::GpuTest;
using test::random_tensor;

Args larger() {
  Args args = test::tiny_flux();
  args.hidden_size = 128;
  args.axes_dim = {16, 24, 24};
  return args;
}

ops::Tensors results(const ImageBatch& batch, const Tensor& target, Device device, Dtype dtype) {
  Flux model(larger());
  model.compute_dtype = dtype;
  model.materialize(at::kFloat, device);
  model.build_buffers(device);
  for (Parameter* parameter : model.parameters()) {  // all of them, so that gates and the last layer do something
    ops::init_normal(*parameter, 3, parameter->fqn.ends_with("_norm.weight") ? 1.0 : 0.1, 1e6);
  }
  ImageBatch here = batch;
  for (Tensor* x : {&here.latents_BSP, &here.text_BLC, &here.pooled_BY, &here.times_B}) *x = x->to(device);
  const Tensor velocity = model.velocity(here);
  ops::squared_error(velocity, target.to(device), 1.0).backward();
  ops::Tensors found = {velocity.detach().to(at::kCPU, at::kFloat)};
  for (const Parameter* parameter : model.parameters()) found.push_back(parameter->grad.to(at::kCPU));
  return found;
}

double relative(const Tensor& found, const Tensor& expected) {
  return ((found - expected).norm() / expected.norm()).item<double>();
}

TEST_F(GpuFlux, VelocityAndGradientsAreThoseOfTheCpu) {
  const int64_t columns = larger().in_channels;
  const ImageBatch batch{.latents_BSP = random_tensor({2, 12, columns}),
                         .text_BLC = random_tensor({2, 8, 12}),
                         .pooled_BY = random_tensor({2, 8}),
                         .times_B = random_tensor({2}).abs().clamp(0, 1),
                         .rows = 3,
                         .columns = 4,
                         .text_tokens = 8};
  const Tensor target = random_tensor({2, 12, columns});
  const ops::Tensors expected = results(batch, target, at::kCPU, at::kFloat);
  for (const auto& [dtype, limit] : {std::pair{at::kFloat, 1e-4}, std::pair{at::kBFloat16, 6e-2}}) {
    const ops::Tensors found = results(batch, target, gpu_, dtype);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(relative(found[i], expected[i]), limit) << i;
  }
}

TEST_F(GpuFlux, NoiseHasTheSameBits) {
  const std::vector<int64_t> rows = {5, 0, 1234567};
  EXPECT_TRUE(at::equal(ops::counter_normal(9, rows, 1000, gpu_).cpu(), ops::counter_normal(9, rows, 1000, at::kCPU)));
}

}  // namespace
}  // namespace titanium::models::flux
