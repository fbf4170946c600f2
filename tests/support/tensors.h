// Comparing tensors. Tolerances of all tests come from the one table here.
#pragma once

#include <ATen/ops/max.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "titanium/tensor/tensor.h"

namespace titanium::test {

// Largest error of an operator relative to the largest element, by the dtype it computed in.
inline double tolerance(Dtype dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-12;
    case at::kFloat:
      return 2e-6;
    default:
      return 1.6e-2;  // bfloat16: two units in the last place
  }
}

inline double relative_error(const Tensor& actual, const Tensor& expected) {
  const Tensor a = actual.detach().cpu().to(at::kDouble), e = expected.detach().cpu().to(at::kDouble);
  const double scale = std::max(1e-30, e.abs().max().item<double>());
  return (a - e).abs().max().item<double>() / scale;
}

// Relative, over all elements together: the mean over many roundings hardly depends on the random numbers.
inline double mean_error(const Tensor& actual, const Tensor& expected) {
  const Tensor a = actual.detach().cpu().to(at::kDouble), e = expected.detach().cpu().to(at::kDouble);
  return ((a - e).norm() / e.norm()).item<double>();
}

// Rows of a table [N, ...] for tokens with these positions: [B, S, ...].
inline Tensor rows_at(const Tensor& table, const std::vector<int64_t>& positions, int64_t seq_len) {
  const Tensor places = at::tensor(positions, at::kLong).to(table.device());
  return table.index_select(0, places).unflatten(0, {-1, seq_len});
}

// Values of a normal distribution from libtorch's generator, which is not the one under test.
inline Tensor random_tensor(const Shape& shape, Dtype dtype = at::kFloat) {
  return at::randn(shape, at::kFloat).to(dtype);
}

}  // namespace titanium::test

#define EXPECT_CLOSE(actual, expected, limit)                                                         \
  do {                                                                                                \
    ASSERT_EQ((actual).sizes(), (expected).sizes());                                                  \
    EXPECT_LE(::titanium::test::relative_error(actual, expected), limit) << #actual " vs " #expected; \
  } while (false)
