// Adam and the gradient norm on the GPU against the CPU.
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>

#include "tests/gpu/gpu_test.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/optim/adam.h"
#include "titanium/optim/grad_norm.h"

namespace titanium::optim {
namespace {

using test::random_tensor;
using test::tolerance;

constexpr double kLr = 0.01;

class GpuOptimizer : public test::GpuTest {
 protected:
  // One parameter for each size and dtype, with random values and a sequence of random gradients.
  struct Side {
    Side(Device device, const std::vector<Tensor>& values) : device(device) {
      for (const Tensor& value : values) {
        owned.push_back(std::make_unique<Parameter>("p" + std::to_string(owned.size()), value.sizes().vec()));
        owned.back()->materialize(value.scalar_type(), device);
        owned.back()->value.detach().copy_(value);
        parameters.push_back(owned.back().get());
      }
    }
    void give(const std::vector<Tensor>& grads) {
      for (size_t i = 0; i < grads.size(); ++i) {
        parameters[i]->grad = grads[i].defined() ? grads[i].to(device) : Tensor();
      }
    }
    Device device;
    std::vector<std::unique_ptr<Parameter>> owned;
    std::vector<Parameter*> parameters;
  };

  static std::vector<Tensor> random_tensors(double scale) {
    std::vector<Tensor> tensors;
    for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
      for (const Shape& shape : std::vector<Shape>{{64, 64}, {1}, {0, 64}, {40001}, {300, 7}})
        tensors.push_back((random_tensor(shape) * scale).to(dtype));
      // A sum of one element that nearly cancels says nothing.
      for (const Tensor& x : tensors) {
        if (x.numel() == 1) x.abs_().clamp_min_(0.5 * scale);
      }
    }
    return tensors;
  }

  static void expect_close(const Side& gpu, const Side& cpu, const Adam& gpu_adam, const Adam& cpu_adam) {
    for (size_t i = 0; i < cpu.parameters.size(); ++i) {
      const Tensor& expected = cpu.parameters[i]->value;
      if (expected.numel() == 0) continue;
      SCOPED_TRACE(testing::Message() << "parameter " << i);
      EXPECT_CLOSE(gpu.parameters[i]->value, expected, 2 * tolerance(expected.scalar_type()));
    }
    const auto actual = gpu_adam.state(), expected = cpu_adam.state();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i].tensor.scalar_type(), expected[i].tensor.scalar_type());
      if (expected[i].tensor.numel() == 0) continue;
      SCOPED_TRACE(testing::Message() << expected[i].name << " of parameter " << i / 3);
      EXPECT_CLOSE(actual[i].tensor, expected[i].tensor, 2 * tolerance(expected[i].tensor.scalar_type()));
    }
  }
};

TEST_F(GpuOptimizer, WritesTheCopyThatProductsUse) {
  for (const bool reference : {false, true}) {
    ops::set_reference_ops(reference);
    Side gpu(gpu_, random_tensors(1));
    Adam adam(gpu.parameters, {});
    adam.materialize();
    for (int step = 0; step < 2; ++step) {
      std::vector<const void*> copies;
      for (const Parameter* parameter : gpu.parameters) copies.push_back(parameter->in(at::kBFloat16).const_data_ptr());
      gpu.give(random_tensors(0.1));
      adam.step(kLr, total_norm(gpu.parameters), 1.0);
      for (size_t i = 0; i < copies.size(); ++i) {
        const Tensor copy = gpu.parameters[i]->in(at::kBFloat16);
        EXPECT_TRUE(at::equal(copy, gpu.parameters[i]->value.to(at::kBFloat16)));
        EXPECT_TRUE(reference || copy.const_data_ptr() == copies[i]);
      }
    }
  }
  ops::set_reference_ops(false);
}

TEST_F(GpuOptimizer, UpdatesAsOnTheCpuWithAndWithoutClipping) {
  for (const bool decoupled : {true, false}) {
    for (const double max_norm : {1.0, 1e9}) {
      SCOPED_TRACE(testing::Message() << "decoupled " << decoupled << ", max_norm " << max_norm);
      const std::vector<Tensor> values = random_tensors(1);
      Side cpu(at::kCPU, values), gpu(gpu_, values);
      Adam cpu_adam(cpu.parameters, {.decoupled = decoupled}), gpu_adam(gpu.parameters, {.decoupled = decoupled});
      cpu_adam.materialize();
      gpu_adam.materialize();
      for (int step = 0; step < 3; ++step) {
        std::vector<Tensor> grads = random_tensors(0.1);
        if (step == 1) grads[3] = Tensor();  // counts one step less than the others
        cpu.give(grads);
        gpu.give(grads);
        const Tensor norm = total_norm(cpu.parameters), gpu_norm = total_norm(gpu.parameters);
        EXPECT_NEAR(gpu_norm.item<double>(), norm.item<double>(), 1e-12 * norm.item<double>());
        cpu_adam.step(kLr, norm, max_norm);
        gpu_adam.step(kLr, gpu_norm, max_norm);
      }
      expect_close(gpu, cpu, gpu_adam, cpu_adam);
    }
  }
}

TEST_F(GpuOptimizer, ANormThatIsNotFiniteChangesNothing) {
  const std::vector<Tensor> values = random_tensors(1);
  Side gpu(gpu_, values);
  Adam adam(gpu.parameters, {});
  adam.materialize();
  std::vector<Tensor> grads = random_tensors(1);
  grads[0][3][4] = std::nan("");
  gpu.give(grads);
  adam.step(kLr, total_norm(gpu.parameters), 1.0);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(gpu.parameters[i]->value.cpu().equal(values[i])) << i;
  for (const StateTensor& state : adam.state()) {
    if (state.tensor.numel() > 0) {
      EXPECT_EQ(state.tensor.abs().max().item<double>(), 0.0) << state.name;
    }
  }
}

TEST_F(GpuOptimizer, StochasticRoundingHasTheBitsOfTheCpuForWholesAndShards) {
  // 1 - 0.001 without rounding on the way: the same fp32 number on both sides.
  const AdamOptions options = {.beta1 = 0, .beta2 = 0, .eps = 0, .weight_decay = 0, .rounding_seed = 11};
  const auto updated = [&](Device device, const Shape& shape, const Box& shard) {
    Parameter p("w", shape);
    p.part = p.shard = shard;
    p.materialize(at::kBFloat16, device);
    p.value.detach().fill_(1);
    Adam adam({&p}, options);
    adam.materialize();
    p.grad = at::full_like(p.value.detach(), 1);
    adam.step(1e-3);
    return p.value.detach().cpu();
  };
  const auto check = [&](const Shape& shape, const std::vector<Box>& shards) {
    const Tensor whole = updated(at::kCPU, shape, whole_box(shape));
    for (const Box& shard : shards) {
      SCOPED_TRACE(testing::Message() << shard.offset << shard.shape);
      EXPECT_TRUE(updated(gpu_, shape, shard).equal(box_of(whole, shard)));
      ops::set_reference_ops(true);
      EXPECT_TRUE(updated(gpu_, shape, shard).equal(box_of(whole, shard)));
      ops::set_reference_ops(false);
    }
  };
  const Shape matrix = {700, 96}, experts = {6, 80, 48};
  check(matrix, {whole_box(matrix), {{123, 0}, {400, 96}}, {{0, 32}, {700, 24}}, {{7, 5}, {300, 71}}});
  check(experts,
        {{{2, 0, 0}, {3, 80, 48}}, {{2, 40, 0}, {3, 40, 48}}, {{2, 40, 16}, {3, 40, 16}}, {{1, 7, 5}, {4, 30, 21}}});
}

TEST_F(GpuOptimizer, StochasticRoundingDiffersFromTheCpuByOneUnitAndSeldom) {
  for (const bool decoupled : {true, false}) {
    const std::vector<Tensor> values = random_tensors(1), grads = random_tensors(0.1);
    const AdamOptions options = {.decoupled = decoupled, .rounding_seed = 12};
    Side cpu(at::kCPU, values), gpu(gpu_, values);
    Adam cpu_adam(cpu.parameters, options), gpu_adam(gpu.parameters, options);
    cpu_adam.materialize();
    gpu_adam.materialize();
    cpu.give(grads);
    gpu.give(grads);
    cpu_adam.step(kLr, total_norm(cpu.parameters), 1.0);
    gpu_adam.step(kLr, total_norm(gpu.parameters), 1.0);
    int64_t elements = 0, different = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].scalar_type() != at::kBFloat16 || values[i].numel() == 0) continue;
      const Tensor expected = cpu.parameters[i]->value.detach().to(at::kDouble);
      const Tensor difference = (gpu.parameters[i]->value.detach().cpu().to(at::kDouble) - expected).abs();
      // Where the update cancels the weight, fp32's rounding is more than a unit of what is left.
      EXPECT_TRUE((difference <= expected.abs() * 0x1p-7 + 1e-8).all().item<bool>()) << i;
      elements += expected.numel();
      different += difference.ne(0).sum().item<int64_t>();
    }
    EXPECT_LE(different, elements / 1000);
  }
}

TEST_F(GpuOptimizer, GradientsOfAnyStrideAreRead) {
  Parameter p("w", {30, 50});
  p.materialize(at::kFloat, gpu_);
  p.value.detach().zero_();
  Adam adam({&p}, {.weight_decay = 0.0});
  adam.materialize();
  p.grad = random_tensor({50, 30}).to(gpu_).t();
  adam.step(1.0, total_norm(std::vector<Parameter*>{&p}));
  EXPECT_TRUE(p.value.detach().sign().equal(-p.grad.sign()));
}

}  // namespace
}  // namespace titanium::optim
