#include "titanium/ops/linear/float8.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "tests/support/tensors.h"
#include "titanium/ops/linear/linear.h"

namespace titanium::ops {
namespace {

using test::mean_error;
using test::random_tensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Float8Recipe kRecipes[] = {Float8Recipe::kTensorwise, Float8Recipe::kRowwise, Float8Recipe::kRowwiseWithGwHp};

float scale_for(float amax, Dtype dtype, bool power_of_two = false) {
  return find_scale(at::tensor({amax}), dtype, power_of_two).item<float>();
}

// Rounds to the nearest number with `mantissa` bits after the point, even on a tie, subnormals below 2^smallest: by the
// definition of the format, without its bits.
float round_to(float x, int mantissa, int smallest, float largest) {
  if (x == 0) return 0;
  const int exponent = std::max(std::ilogb(x), smallest);
  const double unit = std::ldexp(1.0, exponent - mantissa);
  return static_cast<float>(std::clamp(std::nearbyint(x / unit) * unit, -double{largest}, double{largest}));
}

std::unique_ptr<Parameter> make_weight(const Tensor& value, Float8Recipe recipe) {
  auto weight = std::make_unique<Parameter>("w.weight", value.sizes().vec());
  weight->materialize(value.scalar_type(), at::kCPU);
  weight->value.detach().copy_(value);
  weight->float8 = std::make_unique<Float8Weight>();
  weight->float8->recipe = recipe;
  return weight;
}

TEST(Float8, TheLargestMagnitudeBecomesTheLargestNumber) {
  EXPECT_EQ(scale_for(448, kE4m3), 1.0F);
  EXPECT_EQ(scale_for(7, kE4m3), 64.0F);
  EXPECT_EQ(scale_for(57344, kE5m2), 1.0F);
  EXPECT_EQ(scale_for(3, kE4m3), static_cast<float>(448.0 / 3.0));
  const Tensor x = random_tensor({64, 48}) * 1e-3;
  const Float8Tensor quantized = to_float8(x, find_scale(find_amax(x), kE4m3), kE4m3);
  EXPECT_EQ(quantized.data.to(at::kFloat).abs().max().item<float>(), 448.0F);
}

TEST(Float8, ScalesAreRoundedDownToPowersOfTwo) {
  for (const auto& [amax, expected] :
       {std::pair{448.0F, 1.0F}, {449.0F, 0.5F}, {300.0F, 1.0F}, {224.0F, 2.0F}, {1e-3F, 262144.0F}}) {
    EXPECT_EQ(scale_for(amax, kE4m3, /*power_of_two=*/true), expected) << amax;
  }
}

TEST(Float8, ZeroStaysZero) {
  EXPECT_EQ(scale_for(0, kE4m3), static_cast<float>(448.0 / 1e-12));
  for (const bool power_of_two : {false, true}) {
    const Tensor zero = at::zeros({16, 16});
    const Float8Tensor quantized = to_float8(zero, find_scale(find_amax(zero), kE5m2, power_of_two), kE5m2);
    EXPECT_TRUE(at::equal(from_float8(quantized), zero));
  }
  EXPECT_EQ(find_amax(at::zeros({0, 16})).item<float>(), 0.0F);
}

TEST(Float8, WhatIsNotFiniteIsNeverMadeFinite) {
  for (const float broken : {kInfinity, -kInfinity, std::nanf("")}) {
    for (const bool power_of_two : {false, true}) {
      Tensor x = random_tensor({4, 4});
      x[1][2].fill_(broken);
      const Tensor back = from_float8(to_float8(x, find_scale(find_amax(x), kE4m3, power_of_two), kE4m3));
      EXPECT_TRUE(back.isnan().all().item<bool>()) << broken;
    }
  }
}

TEST(Float8, NumbersBeyondTheLargestBecomeTheLargest) {
  const Tensor x = at::tensor({1e6F, -1e6F, 460.0F, 465.0F, kInfinity});
  const Tensor one = at::tensor(1.0F);
  EXPECT_TRUE(
      at::equal(to_float8(x, one, kE4m3).data.to(at::kFloat), at::tensor({448.F, -448.F, 448.F, 448.F, 448.F})));
  EXPECT_EQ(to_float8(x, one, kE5m2).data[1].to(at::kFloat).item<float>(), -57344.0F);
}

TEST(Float8, CastsRoundToTheNearestNumberOfTheFormat) {
  const Tensor x =
      at::cat({random_tensor({4096}) * 30, random_tensor({4096}) * 1e-2, at::tensor({17.F, 19.F, 0.001F})});
  const Tensor one = at::tensor(1.0F);
  const Tensor e4m3 = to_float8(x, one, kE4m3).data.to(at::kFloat), e5m2 = to_float8(x, one, kE5m2).data.to(at::kFloat);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float value = x[i].item<float>();
    ASSERT_EQ(e4m3[i].item<float>(), round_to(value, 3, -6, 448)) << value;
    ASSERT_EQ(e5m2[i].item<float>(), round_to(value, 2, -14, 57344)) << value;
  }
}

// Numbers that float8 holds exactly, with an amax that makes scales powers of two: then float8 changes nothing.
TEST(Float8, ProductsOfNumbersThatFloat8HoldsAreExact) {
  const auto exact = [](const Shape& shape, double amax) {
    Tensor x = (random_tensor(shape) * 2).round().clamp(-4, 4);
    x.fill_diagonal_(amax);  // in each row and column of a square matrix
    return x;
  };
  const Tensor x = exact({16, 16}, 7), w = exact({16, 16}, 7), grad = exact({16, 16}, 7);
  for (const Float8Recipe recipe : kRecipes) {
    const auto weight = make_weight(w, recipe);
    EXPECT_TRUE(at::equal(linear_forward(x, *weight), at::mm(x, w.t())));
    EXPECT_TRUE(at::equal(linear_input_grad(grad, *weight), at::mm(grad, w)));
    accumulate_weight_grad(grad, x, *weight);
    EXPECT_TRUE(at::equal(weight->grad, at::mm(grad.t(), x)));
  }
}

// Rounding to e4m3 changes a number by at most 1/16, by 2.6 % in the mean; to e5m2 by twice that. A product has two
// such operands.
TEST(Float8, ProductsHaveTheErrorOfTheFormatsOfTheirOperands) {
  const Tensor x = random_tensor({80, 96}), w = random_tensor({64, 96}), grad = random_tensor({80, 64});
  for (const Float8Recipe recipe : kRecipes) {
    const auto weight = make_weight(w, recipe);
    const double e4m3 = 0.037, e5m2 = 0.058, off = 0.006;
    const double of_grad = recipe == Float8Recipe::kTensorwise ? e5m2 : e4m3;
    EXPECT_NEAR(mean_error(linear_forward(x, *weight), at::mm(x, w.t())), e4m3, off);
    EXPECT_NEAR(mean_error(linear_input_grad(grad, *weight), at::mm(grad, w)), of_grad, off);
    accumulate_weight_grad(grad, x, *weight);
    const double error = mean_error(weight->grad, at::mm(grad.t(), x));
    if (recipe == Float8Recipe::kRowwiseWithGwHp) {
      EXPECT_EQ(error, 0);
    } else {
      EXPECT_NEAR(error, of_grad, off);
    }
  }
}

TEST(Float8, EveryFormOfAProductIsTheSameProduct) {
  const Tensor x = random_tensor({24, 32}, at::kBFloat16), grad = random_tensor({24, 16}, at::kBFloat16);
  const Tensor residual = random_tensor({24, 16}, at::kBFloat16);
  for (const Float8Recipe recipe : kRecipes) {
    const auto weight = make_weight(random_tensor({16, 32}), recipe);
    const Tensor grad_x = linear_input_grad(grad, *weight);
    Tensor written = at::zeros_like(grad_x), added = at::zeros_like(grad_x);
    write_input_grad(written, grad, *weight);
    add_input_grad(added, grad, *weight);
    EXPECT_TRUE(at::equal(written, grad_x));
    EXPECT_TRUE(at::equal(added, grad_x));
    EXPECT_TRUE(at::equal(linear_residual_forward(x, *weight, residual, all_rows_here()),
                          linear_forward(x, *weight) + residual));
    EXPECT_EQ(grad_x.scalar_type(), at::kBFloat16);
    accumulate_weight_grad(grad, x, *weight);
    const Tensor once = weight->grad.clone();
    GradQueue queue;
    weight->deferred = &queue;
    accumulate_weight_grad(grad, x, *weight);
    EXPECT_TRUE(at::equal(weight->grad, once));
    for (const auto& work : queue) work();
    EXPECT_TRUE(at::equal(weight->grad, once * 2));
  }
}

TEST(Float8, AWeightIsQuantisedOnceUntilItChanges) {
  const Tensor x = random_tensor({16, 32}), grad = random_tensor({16, 48});
  for (const Float8Recipe recipe : kRecipes) {
    const auto weight = make_weight(random_tensor({48, 32}), recipe);
    const auto both = [&] {
      linear_forward(x, *weight);
      linear_input_grad(grad, *weight);
      return std::pair{weight->float8->for_output.data.data_ptr(), weight->float8->for_input_grad.data.data_ptr()};
    };
    const auto first = both();
    const Tensor kept = weight->float8->for_output.data;  // so that its memory is not used again
    EXPECT_EQ(both(), first);
    const Tensor before = linear_forward(x, *weight);
    weight->value.detach().mul_(2);
    weight->value_changed();
    EXPECT_NE(both().first, first.first);
    EXPECT_TRUE(at::equal(linear_forward(x, *weight), before * 2));
  }
}

void expect_scales_of_whole(const Parameter& part, const Parameter& whole, int64_t rank) {
  const int64_t cut_dim = part.float8->cut_dim;
  for (const auto& [found, expected] :
       {std::pair{part.float8->for_output.scale, whole.float8->for_output.scale},
        {part.float8->for_input_grad.scale.t(), whole.float8->for_input_grad.scale.t()}}) {
    const bool is_cut = expected.dim() > 0 && expected.size(cut_dim) > 1;  // a scale per line that is not cut
    EXPECT_TRUE(at::equal(found, is_cut ? expected.chunk(2, cut_dim)[rank] : expected));
  }
}

// The parts of a weight that is cut, with the maximum over both taken as ranks would take it: a first pass collects,
// a second one uses it. The first part holds much smaller numbers: with a scale of its own it would be rounded less.
TEST(Float8, PartsOfACutWeightHaveTheScalesOfTheWhole) {
  const Tensor x = random_tensor({8, 32}), w = random_tensor({16, 32}), grad = random_tensor({8, 16});
  for (const Tensor& cut : {x.slice(1, 0, 16), w.slice(1, 0, 16), w.slice(0, 0, 8), grad.slice(1, 0, 8)})
    cut.div_(1000);
  for (const Float8Recipe recipe : kRecipes) {
    const auto whole = make_weight(w, recipe);
    const Tensor y = linear_forward(x, *whole), grad_x = linear_input_grad(grad, *whole);
    for (const int64_t cut_dim : {0, 1}) {
      Tensor sum_y, sum_grad_x;
      std::vector<Tensor> parts_y, parts_grad_w, partial;
      std::vector<std::vector<Tensor>> maxima(2);
      for (int pass = 0; pass < 2; ++pass) {
        parts_y.clear(), parts_grad_w.clear(), partial.clear();
        for (int64_t rank = 0; rank < 2; ++rank) {
          const auto part = make_weight(w.chunk(2, cut_dim)[rank].contiguous(), recipe);
          part->float8->cut_dim = cut_dim;
          size_t call = 0;
          part->float8->max_over_parts = [&, rank](const Tensor& amax) {
            if (pass == 0) return maxima[rank].push_back(amax.clone());
            amax.copy_(at::max(maxima[0][call], maxima[1][call]));
            ++call;
          };
          const Tensor part_x = cut_dim == 1 ? x.chunk(2, 1)[rank] : x;
          const Tensor part_grad = cut_dim == 0 ? grad.chunk(2, 1)[rank] : grad;
          parts_y.push_back(linear_forward(part_x, *part));
          partial.push_back(linear_input_grad(part_grad, *part));
          accumulate_weight_grad(part_grad, part_x, *part);
          parts_grad_w.push_back(part->grad);
          if (pass == 1) expect_scales_of_whole(*part, *whole, rank);
        }
      }
      accumulate_weight_grad(grad, x, *whole);
      EXPECT_CLOSE(cut_dim == 0 ? at::cat(parts_y, 1) : parts_y[0] + parts_y[1], y, 1e-6);
      EXPECT_CLOSE(cut_dim == 1 ? at::cat(partial, 1) : partial[0] + partial[1], grad_x, 1e-6);
      EXPECT_CLOSE(at::cat(parts_grad_w, cut_dim), whole->grad, 1e-6);
      whole->zero_grad();
    }
  }
}

}  // namespace
}  // namespace titanium::ops
