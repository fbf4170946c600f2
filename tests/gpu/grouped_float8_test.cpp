// Products of experts in float8 on the tensor cores against the same rounded operands multiplied in fp32.
#include "titanium/ops/experts/grouped_float8.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/randint.h>

#include "tests/gpu/gpu_test.h"
#include "titanium/ops/experts/grouped_linear.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using GpuGroupedFloat8 = test::GpuTest;

struct Case {
  int64_t rows, experts, used, in, out;  // rows fall on the first `used` experts
};

struct Products {
  Tensor output, input_grad, weight_grad;
};

Products products(const Tensor& x, const Tensor& grad, Parameter& weight, const Tensor& ends) {
  return {grouped_forward(x, weight, ends), grouped_input_grad(grad, weight, ends),
          float8_grouped_weight_grad(grad, x, weight, ends)};
}

TEST_F(GpuGroupedFloat8, MultipliesWhatTheRoundedOperandsStandFor) {
  for (const Dtype stored : {at::kBFloat16, at::kFloat}) {
    for (const Case& size : {Case{301, 5, 5, 64, 96}, Case{1, 3, 1, 32, 16}, Case{4096, 16, 3, 256, 384},
                             Case{777, 64, 64, 160, 48}, Case{2000, 8, 1, 128, 128}}) {
      SCOPED_TRACE(testing::Message() << size.rows << " rows, " << size.experts << " experts, " << size.in << " x "
                                      << size.out << " " << stored);
      Parameter weight("experts.w1", {size.experts, size.out, size.in});
      weight.materialize(stored, gpu_);
      weight.value.detach().copy_(random_tensor({size.experts, size.out, size.in}) * 0.02);
      weight.float8 = std::make_unique<Float8Weight>();
      weight.float8->recipe = Float8Recipe::kRowwise;
      Tensor x = random_tensor({size.rows, size.in}), grad = random_tensor({size.rows, size.out}) * 1e-4;
      x.select(1, 3).mul_(50);  // a channel that stands out
      x = x.to(gpu_, at::kBFloat16), grad = grad.to(gpu_, at::kBFloat16);
      const Tensor counts = at::bincount(at::randint(size.used, {size.rows}, at::kLong), {}, size.experts);
      const Tensor ends = counts.cumsum(0).to(at::kInt).to(gpu_);
      const Products found = products(x, grad, weight, ends);
      weight.float8->emulate = true;
      const Products expected = products(x, grad, weight, ends);
      // The tensor cores keep 14 bits of a sum.
      EXPECT_CLOSE(found.output, expected.output, 1e-2);
      EXPECT_CLOSE(found.input_grad, expected.input_grad, 1e-2);
      EXPECT_CLOSE(found.weight_grad, expected.weight_grad, 1e-2);
      weight.float8 = nullptr;
      const Tensor plain = grouped_forward(x, weight, ends);
      const auto distance = [](const Tensor& a, const Tensor& b) {
        return (a - b).to(at::kFloat).norm().item<double>();
      };
      EXPECT_LT(3 * distance(found.output, expected.output), distance(found.output, plain));
    }
  }
}

}  // namespace
}  // namespace titanium::ops
