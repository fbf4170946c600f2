#include <ATen/ops/matmul.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/ops/linear/gemm.h"
#include "titanium/ops/linear/multiply.h"

namespace titanium::ops {
namespace {

using test::wide;
using GpuMultiply = test::KernelTest;

struct Sizes {
  int64_t m, n, k;
};
const std::vector<Sizes> kSizes = {{256, 512, 128}, {1, 1, 1}, {33, 7, 130}, {1000, 24, 999}, {5, 1024, 64}};

TEST_F(GpuMultiply, MatchesFloat64InAnyStorage) {
  for (const Sizes& size : kSizes) {
    for (const bool a_columns : {false, true}) {
      for (const bool b_columns : {false, true}) {
        for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
          SCOPED_TRACE(testing::Message()
                       << size.m << " " << size.n << " " << size.k << a_columns << b_columns << dtype);
          const Tensor a =
              a_columns ? random({size.k, size.m}, at::kBFloat16).t() : random({size.m, size.k}, at::kBFloat16);
          const Tensor b =
              b_columns ? random({size.n, size.k}, at::kBFloat16).t() : random({size.k, size.n}, at::kBFloat16);
          const Tensor product = at::matmul(wide(a), wide(b));
          const Tensor out = empty({size.m, size.n}, dtype);
          multiply(out, a, b);
          EXPECT_ROUNDED(out, product, test::tolerance(at::kFloat));
          const Tensor added = random({size.m, size.n}, dtype);
          multiply(out, a, b, added);
          EXPECT_ROUNDED(out, product + wide(added), test::tolerance(at::kFloat));
          const Tensor before = wide(out);
          multiply(out, a, b, out);
          if (dtype == at::kFloat) {
            EXPECT_ROUNDED(out, product + before, test::tolerance(at::kFloat));
          } else {  // the product may be rounded before it is added
            const Tensor limit = (product.abs() + (product + before).abs()) * 0x1p-8 + 1e-4;
            EXPECT_TRUE(((wide(out) - product - before).abs() <= limit).all().item<bool>());
          }
        }
      }
    }
  }
}

TEST_F(GpuMultiply, TakesPartsOfMatricesAtAnyAddress) {
  const Tensor wide_a = random({64, 200}, at::kBFloat16), wide_b = random({200, 96}, at::kBFloat16);
  const Tensor a = wide_a.narrow(1, 3, 100), b = wide_b.narrow(0, 7, 100).narrow(1, 5, 40);
  const Tensor all = empty({64, 50}, at::kBFloat16), out = all.narrow(1, 1, 40);
  multiply(out, a, b);
  EXPECT_ROUNDED(out, at::matmul(wide(a), wide(b)), test::tolerance(at::kFloat));
  EXPECT_TRUE(all.narrow(1, 41, 9).isnan().all().item<bool>());
}

TEST_F(GpuMultiply, GivesTheSameWithEveryCandidateAndKeepsTheChoice) {
  const Tensor a = random({300, 256}, at::kBFloat16), b = random({256, 520}, at::kBFloat16);
  const Tensor expected = at::matmul(wide(a), wide(b));
  start_gemm_trials();
  std::vector<Tensor> results;
  for (int i = 0; i < 40; ++i) multiply(results.emplace_back(empty({300, 520}, at::kFloat)), a, b);
  const GemmTrials found = finish_gemm_trials();
  for (const Tensor& result : results) EXPECT_ROUNDED(result, expected, test::tolerance(at::kFloat));
  ASSERT_EQ(found.trials.size(), 1);
  EXPECT_EQ(found.trials[0].calls, 40);
  EXPECT_LE(found.trials[0].best_us, found.trials[0].first_us);
  EXPECT_GT(found.trials[0].best_us, 0);
  const Tensor chosen = empty({300, 520}, at::kFloat), again = empty({300, 520}, at::kFloat);
  multiply(chosen, a, b);
  use_gemm_choices(found.choices);
  multiply(again, a, b);
  EXPECT_TRUE(at::equal(chosen, again));
  EXPECT_ROUNDED(again, expected, test::tolerance(at::kFloat));
}

}  // namespace
}  // namespace titanium::ops
