#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>

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

TEST_F(GpuMultiply, GivesTheSameWithEveryCandidateAndKeepsTheChoiceOfTheSteps) {
  const Tensor a = random({300, 256}, at::kBFloat16), b = random({256, 520}, at::kBFloat16);
  const Tensor expected = at::matmul(wide(a), wide(b));
  start_gemm_trials();
  std::vector<Tensor> results;
  for (int i = 0; i < 40; ++i) multiply(results.emplace_back(empty({300, 520}, at::kFloat)), a, b);
  const GemmTrials found = finish_gemm_trials({.by_loops = false});
  for (const Tensor& result : results) EXPECT_ROUNDED(result, expected, test::tolerance(at::kFloat));
  ASSERT_EQ(found.trials.size(), 1);
  EXPECT_EQ(found.trials[0].calls, 40);
  EXPECT_LE(found.trials[0].best_us, found.trials[0].first_us);
  EXPECT_GT(found.trials[0].best_us, 0);
  EXPECT_FALSE(found.trials[0].sustained);
  const Tensor chosen = empty({300, 520}, at::kFloat), again = empty({300, 520}, at::kFloat);
  multiply(chosen, a, b);
  use_gemm_choices(found.choices);
  multiply(again, a, b);
  EXPECT_TRUE(at::equal(chosen, again));
  EXPECT_ROUNDED(again, expected, test::tolerance(at::kFloat));
}

// Of every kind, and long enough for loops: 69 billion multiplications and additions each.
class LongProducts {
 public:
  explicit LongProducts(const std::function<Tensor(const Shape&, Dtype)>& random)
      : a_(random({kM, kK}, at::kBFloat16)),
        b_(random({kK, kN}, at::kBFloat16)),
        bias_(random({kN}, at::kBFloat16)),
        // Columns, from odd addresses on.
        part_(random({kK, kM + 8}, at::kBFloat16).narrow(1, 1, kM).t()),
        sum_(random({kM, kN + 8}, at::kFloat).narrow(1, 1, kN)),
        a8_(a_.to(at::kFloat8_e4m3fn)),
        b8_(b_.t().contiguous().to(at::kFloat8_e4m3fn).t()),
        a_scale_(random({kM, 1}, at::kFloat)),
        b_scale_(random({kN, 1}, at::kFloat)) {}

  void multiply_all() const {
    multiply_with_bias(with_bias_, a_, b_, bias_);
    multiply(sum_, part_, b_, sum_);
    gemm({.out_MN = scaled_, .a_MK = a8_, .b_KN = b8_, .a_scale = a_scale_, .b_scale = b_scale_});
  }

  void match_float64() const {
    const Tensor before = sum_.to(at::kDouble);
    multiply_all();
    const auto product = [](const Tensor& a, const Tensor& b) {
      return at::matmul(a.to(at::kDouble), b.to(at::kDouble));
    };
    EXPECT_CLOSE(with_bias_, product(a_, b_) + bias_, test::tolerance(at::kBFloat16));
    EXPECT_CLOSE(sum_, product(part_, b_) + before, test::tolerance(at::kFloat));
    EXPECT_CLOSE(scaled_, product(a8_, b8_) * a_scale_ * b_scale_.t(), test::tolerance(at::kBFloat16));
  }

  // Of those that do not change what they read.
  std::vector<Tensor> results() const {
    multiply_all();
    return {with_bias_.clone(), scaled_.clone()};
  }

 private:
  static constexpr int64_t kM = 2048, kN = 4096, kK = 4096;
  Tensor a_, b_, bias_, part_, sum_, a8_, b8_, a_scale_, b_scale_;
  Tensor with_bias_ = at::empty({kM, kN}, a_.options()), scaled_ = at::empty({kM, kN}, a_.options());
};

TEST_F(GpuMultiply, ChoosesInLoopsForProductsOfAnyKind) {
  const LongProducts products([&](const Shape& shape, Dtype dtype) { return random(shape, dtype); });
  start_gemm_trials();
  for (int i = 0; i < 48; ++i) products.multiply_all();
  std::vector<int64_t> done;
  const GemmTrials found = finish_gemm_trials({.on_product = [&](int64_t count, int64_t of) {
    EXPECT_EQ(of, 3);
    done.push_back(count);
  }});
  EXPECT_EQ(done, (std::vector<int64_t>{1, 2, 3}));
  ASSERT_EQ(found.trials.size(), 3);
  const auto in_loops = [](const GemmTrial& trial) { return trial.sustained.has_value(); };
  EXPECT_TRUE(std::ranges::any_of(found.trials, in_loops));
  for (const GemmTrial& trial : found.trials | std::views::filter(in_loops)) {
    EXPECT_GT(trial.sustained->best_us, 0);
    EXPECT_LE(trial.sustained->best_us, trial.sustained->fastest_in_steps_us);
    EXPECT_LE(trial.sustained->best_us, trial.sustained->first_us);
  }
  products.match_float64();
  const std::vector<Tensor> chosen = products.results();
  use_gemm_choices(found.choices);
  const std::vector<Tensor> again = products.results();
  for (size_t i = 0; i < chosen.size(); ++i) EXPECT_TRUE(at::equal(chosen[i], again[i]));
  products.match_float64();
}

}  // namespace
}  // namespace titanium::ops
