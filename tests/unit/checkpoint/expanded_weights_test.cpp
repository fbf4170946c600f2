// Quantised weights against their definitions, element by element.
#include "titanium/checkpoint/expanded_weights.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/checkpoint/safetensors/writer.h"

namespace titanium::checkpoint {
namespace {

std::unique_ptr<WeightsSource> written(const std::vector<NamedTensor>& tensors) {
  const auto file = test::test_folder() / "model.safetensors";
  write_safetensors(file, tensors);
  return open_safetensors(file);
}

// A box in the middle, from an odd place to an odd place.
Tensor read(const WeightsSource& source, const std::string& name, const Box& box) {
  Tensor destination = at::zeros(box.shape);
  source.read(name, box, destination);
  return destination;
}

TEST(ExpandedWeights, Float8HasOneFactorForEachBlockOf128) {
  const Tensor data = at::randn({1100, 300}).to(at::kFloat8_e4m3fn), factors = at::rand({9, 3}) + 0.5;
  const auto source = written({{"x.weight", data}, {"x.weight_scale_inv", factors}, {"y", at::zeros({2})}});
  EXPECT_EQ(find_quantised(*source), "x.weight");
  const ExpandedWeights expanded(*source);
  EXPECT_EQ(expanded.tensors().size(), 2U);
  EXPECT_EQ(expanded.tensor("x.weight").dtype, at::kFloat);
  const Tensor values = data.to(at::kFloat);
  Tensor expected = at::zeros({1100, 300});
  for (int64_t i = 0; i < 1100; ++i) {
    for (int64_t j = 0; j < 300; ++j) {
      expected[i][j] = values[i][j].item<float>() * factors[i / 128][j / 128].item<float>();
    }
  }
  EXPECT_TRUE(at::equal(read(expanded, "x.weight", whole_box({1100, 300})), expected));
  const Box box{{101, 77}, {999, 201}};
  EXPECT_TRUE(at::equal(read(expanded, "x.weight", box), box_of(expected, box)));
}

TEST(ExpandedWeights, FourBitsAreNumbersWithASignAndAnExponentForEach32) {
  constexpr int64_t kExperts = 3, kRows = 5, kGroups = 2;
  const Tensor bytes = at::randint(0, 256, {kExperts, kRows, kGroups, 16}, at::kByte);
  const Tensor exponents = at::randint(117, 137, {kExperts, kRows, kGroups}, at::kByte);
  const auto source = written({{"e.down_proj_blocks", bytes}, {"e.down_proj_scales", exponents}});
  EXPECT_EQ(find_quantised(*source), "e.down_proj_blocks");
  const ExpandedWeights expanded(*source);
  ASSERT_EQ(expanded.tensors().size(), 1U);
  EXPECT_EQ(expanded.tensor("e.down_proj").shape, (Shape{kExperts, 32 * kGroups, kRows}));
  Tensor expected = at::zeros({kExperts, 32 * kGroups, kRows});
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    for (int64_t number = 0; number < 32 * kGroups; ++number) {
      for (int64_t row = 0; row < kRows; ++row) {
        const auto byte = bytes[expert][row][number / 32][number % 32 / 2].item<int>();
        const int bits = number % 2 == 0 ? byte % 16 : byte / 16;
        const int sign = bits / 8, exponent = bits % 8 / 2, mantissa = bits % 2;
        const double magnitude = exponent == 0 ? 0.5 * mantissa : std::ldexp(1 + 0.5 * mantissa, exponent - 1);
        const int scale = exponents[expert][row][number / 32].item<int>() - 127;
        expected[expert][number][row] = std::ldexp(sign == 1 ? -magnitude : magnitude, scale);
      }
    }
  }
  EXPECT_TRUE(at::equal(read(expanded, "e.down_proj", whole_box({kExperts, 32 * kGroups, kRows})), expected));
  const Box box{{1, 29, 2}, {2, 7, 3}};
  EXPECT_TRUE(at::equal(read(expanded, "e.down_proj", box), box_of(expected, box)));
}

TEST(ExpandedWeights, WhatIsNotQuantisedIsLeftAlone) {
  const auto source = written({{"w", at::randn({2, 3}).to(at::kBFloat16)}, {"v", at::zeros({3})}});
  EXPECT_EQ(find_quantised(*source), std::nullopt);
  const ExpandedWeights expanded(*source);
  EXPECT_EQ(expanded.tensor("w").dtype, at::kBFloat16);
  EXPECT_TRUE(at::equal(read(expanded, "w", whole_box({2, 3})), read(*source, "w", whole_box({2, 3}))));
}

std::string refusal(const std::vector<NamedTensor>& tensors) {
  const auto source = written(tensors);
  try {
    const ExpandedWeights expanded(*source);
  } catch (const Error& error) {
    return std::string(error.what()).substr(source->path().size() + 2);
  }
  return "";
}

TEST(ExpandedWeights, ScalesThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal({{"x", at::zeros({130, 128}).to(at::kFloat8_e4m3fn)}, {"x_scale_inv", at::zeros({1, 1})}}),
            "x is [130, 128] and x_scale_inv is [1, 1], but one factor for each block of 128 x 128 elements is "
            "expected. The folder is damaged or quantised in another way: fetch it again.");
  const Tensor bytes = at::zeros({2, 4, 3, 16}, at::kByte);
  EXPECT_EQ(refusal({{"x_blocks", bytes}, {"x_scales", at::zeros({2, 4, 2}, at::kByte)}}),
            "x_blocks is [2, 4, 3, 16] and x_scales is [2, 4, 2], but 16 bytes for each exponent are expected. The "
            "folder is damaged or quantised in another way: fetch it again.");
}

}  // namespace
}  // namespace titanium::checkpoint
