// Products of experts in float8 on the tensor cores against the same rounded operands multiplied in fp32.
#include "titanium/ops/experts/grouped_float8.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>

#include "tests/gpu/gpu_test.h"
#include "titanium/ops/experts/grouped_linear.h"
#include "titanium/ops/gpu_kernels.h"

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
  weight.zero_grad();
  accumulate_grouped_weight_grad(grad, x, weight, ends);
  return {grouped_forward(x, weight, ends), grouped_input_grad(grad, weight, ends), weight.grad};
}

TEST_F(GpuGroupedFloat8, MultipliesWhatTheRoundedOperandsStandFor) {
  for (const Dtype stored : {at::kBFloat16, at::kFloat}) {
    for (const Case& size : {Case{301, 5, 5, 64, 96}, Case{1, 3, 1, 32, 16}, Case{4096, 16, 3, 256, 384},
                             Case{777, 64, 64, 160, 48}, Case{2000, 8, 1, 128, 128}, Case{611, 7, 5, 192, 320}}) {
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
      EXPECT_LT(3 * test::mean_error(expected.output, found.output), test::mean_error(plain, found.output));
    }
  }
}

// What tokens are quantised to before they are gathered is what their rows would be.
TEST_F(GpuGroupedFloat8, RowsOfTokensAreThoseThatWereGathered) {
  for (const int64_t top_k : {1, 3}) {
    const Tensor tokens = random_tensor({203, 96}).to(gpu_, at::kBFloat16);
    const Tensor experts = at::randint(5, {203, top_k}, at::kInt).to(gpu_);
    const Dispatch dispatch = sort_by_expert(experts, 7);
    const ExpertOperand of_tokens(tokens, dispatch), of_rows = gather_rows(tokens, dispatch);
    const auto bytes = [](const Tensor& x) { return x.view(at::kByte); };
    EXPECT_TRUE(at::equal(bytes(of_tokens.rows().data), bytes(of_rows.rows().data)));
    EXPECT_TRUE(at::equal(of_tokens.rows().reciprocal, of_rows.rows().reciprocal));
    const ExpertLines a = of_tokens.lines(dispatch.ends_E), b = of_rows.lines(dispatch.ends_E);
    EXPECT_TRUE(at::equal(a.ends_E, b.ends_E));
    EXPECT_TRUE(at::equal(a.reciprocals_EC, b.reciprocals_EC));
    const int64_t filled = a.ends_E[6].item<int32_t>();
    EXPECT_TRUE(at::equal(bytes(a.data_CL).narrow(1, 0, filled), bytes(b.data_CL).narrow(1, 0, filled)));
    EXPECT_TRUE(at::equal(of_tokens.tensor(), of_rows.tensor()));
  }
}

// One launch gives what two give.
TEST_F(GpuGroupedFloat8, PairsOfProductsAreThoseProducts) {
  if (!has_grouped_multiply()) GTEST_SKIP() << "the GPU is not of compute capability 9.0";
  std::vector<std::unique_ptr<Parameter>> weights;
  for (int i = 0; i < 2; ++i) {
    weights.push_back(std::make_unique<Parameter>("experts.w", Shape{6, 128, 192}));
    weights.back()->materialize(at::kBFloat16, gpu_);
    weights.back()->value.detach().copy_(random_tensor({6, 128, 192}) * 0.02);
    weights.back()->float8 = std::make_unique<Float8Weight>();
    weights.back()->float8->recipe = Float8Recipe::kRowwise;
  }
  const ExpertOperand x = random_tensor({500, 192}).to(gpu_, at::kBFloat16);
  const ExpertOperand first = random_tensor({500, 128}).to(gpu_, at::kBFloat16),
                      second = random_tensor({500, 128}).mul(1e-3).to(gpu_, at::kBFloat16);
  const Tensor ends = at::bincount(at::randint(5, {500}, at::kLong), {}, 6).cumsum(0).to(at::kInt).to(gpu_);
  ASSERT_TRUE(pairs_float8_outputs(x, *weights[0], *weights[1]));
  const Float8Pair pair = float8_grouped_forward_pair(x, *weights[0], *weights[1], ends);
  EXPECT_CLOSE(pair.first_RO, float8_grouped_forward(x, *weights[0], ends), 1e-2);
  EXPECT_CLOSE(pair.second_RO, float8_grouped_forward(x, *weights[1], ends), 1e-2);
  const Tensor sum = float8_grouped_input_grad_pair(first, second, *weights[0], *weights[1], ends);
  EXPECT_CLOSE(
      sum, float8_grouped_input_grad(first, *weights[0], ends) + float8_grouped_input_grad(second, *weights[1], ends),
      1e-2);
}

}  // namespace
}  // namespace titanium::ops
