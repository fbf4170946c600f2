#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/sigmoid.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/expert_swiglu.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

const double kLimit = 4 * test::tolerance(at::kFloat);

struct Case {
  int64_t rows, count, dim;  // of `rows` only the first `count` exist
  int64_t shift = 0;
};
const std::vector<Case> kCases = {{1, 1, 1},       {3, 2, 7},      {40, 33, 768}, {50, 50, 1408},
                                  {20, 0, 96},     {17, 9, 2880},  {9, 8, 8192},  {30, 21, 130},
                                  {12, 12, 24, 1}, {300, 257, 40}, {5, 4, 10003}};

struct Weighing {
  bool weights, choices, accumulate;
};
const std::vector<Weighing> kWeighings = {
    {false, false, false}, {true, false, false}, {true, true, false}, {true, true, true}};

class KernelExpertSwiglu : public test::KernelTest {
 protected:
  // Weights and their gradients, in the order of choices, and the same in the order of rows for the reference.
  struct Weights {
    RowWeights args;
    Tensor values, choice_of_row, gradients, before;
  };
  Weights make_weights(const Case& size, const Weighing& how) const {
    Weights made;
    made.values = random({size.rows}, at::kFloat);
    made.choice_of_row = at::randperm(size.rows, at::kInt).to(gpu_);
    made.gradients = how.accumulate ? random({size.rows}, at::kFloat) : empty({size.rows}, at::kFloat);
    made.before = made.gradients.clone();
    if (how.weights) made.args.weights = made.values.data_ptr<float>();
    if (how.choices) made.args.choice_of_row = made.choice_of_row.data_ptr<int32_t>();
    if (how.weights) made.args.grad_weights = made.gradients.data_ptr<float>();
    made.args.accumulate = how.accumulate;
    return made;
  }
  static Tensor by_row(const Weights& weights, const Tensor& values, int64_t count) {
    const Tensor order = weights.choice_of_row.cpu().to(at::kLong);
    return (weights.args.choice_of_row != nullptr ? wide(values).index_select(0, order) : wide(values))
        .narrow(0, 0, count);
  }
  // [count, 1]; 1 if there are none.
  static Tensor weight_column(const Weights& weights, int64_t count) {
    if (weights.args.weights == nullptr) return at::full({count, 1}, 1, at::kDouble);
    return by_row(weights, weights.values, count).unsqueeze(1);
  }
  void expect_gradients(const Weights& weights, const Case& size, const Tensor& expected) const {
    if (weights.args.weights == nullptr || size.count == 0) return;
    const Tensor actual = by_row(weights, weights.gradients, size.count);
    const Tensor before = by_row(weights, weights.before, size.count);
    EXPECT_CLOSE(actual, weights.args.accumulate ? before + expected : expected, kLimit);
    EXPECT_EQ(weights.gradients.isnan().sum().item<int64_t>(), weights.args.accumulate ? 0 : size.rows - size.count);
  }
  Tensor count_of(const Case& size) const { return at::full({1}, size.count, at::kInt).to(gpu_); }
  static void expect_poison_after(const Tensor& tensor, int64_t count) {
    EXPECT_TRUE(tensor.narrow(0, count, tensor.size(0) - count).isnan().all().item<bool>());
  }
};

std::string text(const Case& size, Dtype dtype) {
  return (testing::Message() << dtype << ", " << size.count << " of " << size.rows << " x " << size.dim).GetString();
}

TEST_F(KernelExpertSwiglu, BackwardMatchesTheDefinitionWithWeights) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Weighing& how : kWeighings) {
      for (const Case& size : kCases) {
        SCOPED_TRACE(testing::Message() << text(size, dtype) << ", weights " << how.weights << how.choices
                                        << how.accumulate);
        const Tensor fused = random({size.rows, 2 * size.dim}, dtype, size.shift).mul_(4), count = count_of(size);
        const Tensor gate = fused.narrow(1, 0, size.dim), up = fused.narrow(1, size.dim, size.dim);
        const Tensor dproduct = random({size.rows, size.dim}, dtype);
        const Tensor out = empty({size.rows, 2 * size.dim}, dtype), product = empty({size.rows, size.dim}, dtype);
        const Tensor dgate = out.narrow(1, 0, size.dim), dup = out.narrow(1, size.dim, size.dim);
        const Weights weights = make_weights(size, how);
        launch(expert_swiglu_backward,
               ExpertSwigluBackwardArgs{element_type(gate), dproduct.data_ptr(), gate.data_ptr(), up.data_ptr(),
                                        dgate.data_ptr(), dup.data_ptr(), product.data_ptr(), dproduct.stride(0),
                                        gate.stride(0), up.stride(0), dgate.stride(0), dup.stride(0), product.stride(0),
                                        size.rows, size.dim, count.data_ptr<int32_t>(), weights.args});
        expect_poison_after(out, size.count);
        expect_poison_after(product, size.count);
        if (size.count == 0) continue;
        const auto first = [&](const Tensor& tensor) { return tensor.narrow(0, 0, size.count); };
        const Tensor g = first(wide(gate)), u = first(wide(up)), d = first(wide(dproduct)), s = at::sigmoid(g);
        const Tensor w = weight_column(weights, size.count);
        EXPECT_ROUNDED(first(dgate), w * d * u * s * (1 + g * (1 - s)), kLimit);
        EXPECT_ROUNDED(first(dup), w * d * g * s, kLimit);
        EXPECT_ROUNDED(first(product), w * g * s * u, kLimit);
        expect_gradients(weights, size, (d * g * s * u).sum(1));
      }
    }
  }
}

TEST_F(KernelExpertSwiglu, BackwardOverItsInputsGivesTheSameBits) {
  const Case size{70, 70, 1408};
  const Tensor gate = random({70, 1408}, at::kBFloat16), up = random({70, 1408}, at::kBFloat16),
               grad = random({70, 1408}, at::kBFloat16);
  const Weights one = make_weights(size, {true, true, false});
  Weights two = one;
  two.gradients = empty({70}, at::kFloat);
  two.args.grad_weights = two.gradients.data_ptr<float>();
  const auto run = [&](const Weights& weights, const Tensor& dgate, const Tensor& dup, const Tensor& product) {
    launch(expert_swiglu_backward,
           ExpertSwigluBackwardArgs{element_type(gate), grad.data_ptr(), gate.data_ptr(), up.data_ptr(),
                                    dgate.data_ptr(), dup.data_ptr(), product.data_ptr(), 1408, 1408, 1408, 1408, 1408,
                                    1408, 70, 1408, nullptr, weights.args});
  };
  const Tensor dgate = at::empty_like(gate), dup = at::empty_like(gate), product = at::empty_like(gate);
  run(one, dgate, dup, product);
  run(two, gate, up, grad);
  EXPECT_TRUE(at::equal(gate, dgate));
  EXPECT_TRUE(at::equal(up, dup));
  EXPECT_TRUE(at::equal(grad, product));
  EXPECT_TRUE(at::equal(one.gradients, two.gradients));
}

// Rows of experts, the gradient of the clamps, and biases, with the definition in double precision.
class KernelClampedSwiglu : public KernelExpertSwiglu {
 protected:
  static constexpr int64_t kExperts = 37;
  static constexpr double kClamp = 1.5;

  struct Experts {
    Tensor ends, of_row;
  };
  // Some experts have no rows.
  Experts random_experts(const Case& size) const {
    const Tensor chosen = at::randint(kExperts / 2, {size.count}, at::kLong) * 2 + 1;
    const Tensor counts = at::bincount(chosen, {}, kExperts);
    return {counts.cumsum(0).to(at::kInt).to(gpu_), at::arange(kExperts, at::kLong).repeat_interleave(counts)};
  }
  struct Reference {
    Tensor product, dfused, dots;
  };
  static Reference reference(const Tensor& fused, const Tensor& dproduct, const Tensor& weights) {
    const Tensor leaf = fused.detach().clone().set_requires_grad(true);
    const Tensor pairs = leaf.view({leaf.size(0), -1, 2});
    const Tensor glu = pairs.select(2, 0).clamp_max(kClamp), lin = pairs.select(2, 1).clamp(-kClamp, kClamp);
    const Tensor product = glu * at::sigmoid(1.702 * glu) * (lin + 1);
    (product * dproduct * weights).sum().backward();
    return {product.detach() * weights, leaf.grad(), (product.detach() * dproduct).sum(1)};
  }
};

TEST_F(KernelClampedSwiglu, ForwardAndBackwardMatchTheDefinitionWithBiasesOfExperts) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Dtype bias_dtype : {at::kFloat, at::kBFloat16}) {
      for (const Weighing& how : kWeighings) {
        for (const Case& size : kCases) {
          SCOPED_TRACE(testing::Message() << text(size, dtype) << ", bias " << bias_dtype << ", weights " << how.weights
                                          << how.choices << how.accumulate);
          const Tensor fused = random({size.rows, 2 * size.dim}, dtype, size.shift);
          const Tensor dproduct = random({size.rows, size.dim}, dtype);
          const bool with_bias = how.weights || dtype == bias_dtype;
          const Tensor bias = random({kExperts, 2 * size.dim}, bias_dtype);
          const Experts experts = random_experts(size);
          const void* bias_data = with_bias ? bias.data_ptr() : nullptr;
          const Tensor product = empty({size.rows, size.dim}, dtype), dfused = empty({size.rows, 2 * size.dim}, dtype),
                       again = empty({size.rows, size.dim}, dtype);
          const Weights weights = make_weights(size, how);
          const auto limit = static_cast<float>(kClamp);
          launch(clamped_swiglu_forward,
                 ClampedSwigluForwardArgs{element_type(fused), element_type(bias), fused.data_ptr(), bias_data,
                                          experts.ends.data_ptr<int32_t>(), product.data_ptr(), fused.stride(0),
                                          product.stride(0), size.rows, size.dim, kExperts, limit});
          launch(
              clamped_swiglu_backward,
              ClampedSwigluBackwardArgs{element_type(fused), element_type(bias), dproduct.data_ptr(), fused.data_ptr(),
                                        bias_data, experts.ends.data_ptr<int32_t>(), dfused.data_ptr(),
                                        again.data_ptr(), dproduct.stride(0), fused.stride(0), dfused.stride(0),
                                        again.stride(0), size.rows, size.dim, kExperts, limit, weights.args});
          for (const Tensor& tensor : {product, dfused, again}) expect_poison_after(tensor, size.count);
          if (size.count == 0) continue;
          const auto first = [&](const Tensor& tensor) { return tensor.narrow(0, 0, size.count); };
          Tensor input = first(wide(fused));
          if (with_bias) input = input + wide(bias).index_select(0, experts.of_row);
          const Tensor d = first(wide(dproduct));
          const Reference plain = reference(input, d, at::full({1, 1}, 1, at::kDouble));
          const Reference weighted = reference(input, d, weight_column(weights, size.count));
          EXPECT_ROUNDED(first(product), plain.product, kLimit);
          EXPECT_ROUNDED(first(again), weighted.product, kLimit);
          EXPECT_ROUNDED(first(dfused), weighted.dfused, kLimit);
          expect_gradients(weights, size, plain.dots);
        }
      }
    }
  }
}

TEST_F(KernelClampedSwiglu, NaNIsNotClampedAway) {
  const Tensor fused = empty({1, 16}, at::kBFloat16), product = at::zeros({1, 8}, fused.options());
  const Tensor ends = at::full({1}, 1, at::kInt).to(gpu_);
  launch(clamped_swiglu_forward,
         ClampedSwigluForwardArgs{ElementType::kBFloat16, ElementType::kBFloat16, fused.data_ptr(), nullptr,
                                  ends.data_ptr<int32_t>(), product.data_ptr(), 16, 8, 1, 8, 1, 7});
  EXPECT_TRUE(product.isnan().all().item<bool>());
}

}  // namespace
}  // namespace titanium::kernels
