// The rows of a norm in the backward, and when they are there: Note [Normalised rows in the backward].
#include "titanium/ops/normalised_rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include "tests/support/tensors.h"
#include "titanium/base/error.h"
#include "titanium/ops/rms_norm.h"

namespace titanium::ops {
namespace {

using test::random_tensor;

// This rank's part of the work of two ranks that have the same rows.
class TwoRanks : public RowExchange {
 public:
  int64_t ranks() const override { return 2; }
  Pending gather(const Tensor& rows) override {
    return [rows] { return at::cat({rows, rows}); };
  }
  Pending reduce_scatter(const Tensor& partial) override {
    return [partial] { return partial.chunk(2)[0] * 2; };
  }
  Tensor gather_columns(const Tensor& columns) override { return at::cat({columns, columns}, 1); }
  void sum(const Tensor& tensor) override { tensor.mul_(2); }
  void max(const Tensor&) override {}
};

struct Norm {
  Norm() : weight("norm", Shape{24}), linear("linear", Shape{8, 24}) {
    for (Parameter* parameter : {&weight, &linear}) {
      parameter->materialize(at::kFloat, at::kCPU);
      const c10::AutoGradMode no_grad(false);
      parameter->value.copy_(random_tensor(parameter->value.sizes().vec()));
    }
    rstd = rms_norm_forward(x, weight, 1e-5).rstd_T1;
  }
  NormalisedRows rows(RowExchange& exchange, bool needs_all = false) {
    return NormalisedRows({x, rstd, Tensor(), weight, exchange, {&linear}, needs_all});
  }
  Tensor x = random_tensor({10, 24}), grad = random_tensor({10, 24}), around = random_tensor({10, 24}), rstd;
  Parameter weight, linear;
};

// What a backward hands out, and whether the gradient of the rows was waited for before the weights' gradients.
struct Result {
  Tensor grad_x, rows;
  bool waited_before = false;
};
Result run_backward(NormalisedRows rows, const Norm& norm) {
  Result result;
  bool waited = false;
  const Pending grad = [&] {
    waited = true;
    return norm.grad.clone();
  };
  result.grad_x = rows.backward(grad, norm.around, [&](const LinearInput& all) {
    result.rows = all.tensor();
    result.waited_before = waited;
  });
  return result;
}

void expect_the_bits_of_separate_passes(const Result& result, Norm& norm, RowExchange& exchange) {
  const Tensor grad_weight = norm.weight.grad.clone();
  norm.weight.zero_grad();
  EXPECT_TRUE(at::equal(result.grad_x, rms_norm_backward(norm.grad, norm.x, norm.rstd, norm.weight, norm.around)));
  EXPECT_TRUE(at::equal(grad_weight, norm.weight.grad));
  EXPECT_TRUE(at::equal(result.rows, exchange.gather(rms_norm_apply(norm.x, norm.rstd, norm.weight))()));
}

TEST(NormalisedRows, OnOneRankTheyComeWithTheGradientOfX) {
  Norm norm;
  const Result result = run_backward(norm.rows(all_rows_here()), norm);
  EXPECT_TRUE(result.waited_before);
  expect_the_bits_of_separate_passes(result, norm, all_rows_here());
}

TEST(NormalisedRows, AmongRanksWeightsComeWhileTheGradientOfTheRowsIsOnItsWay) {
  Norm norm;
  TwoRanks ranks;
  const Result result = run_backward(norm.rows(ranks), norm);
  EXPECT_FALSE(result.waited_before);
  expect_the_bits_of_separate_passes(result, norm, ranks);
}

TEST(NormalisedRows, AreThereBeforeWhereProductsAreComputedOnceMore) {
  Norm norm;
  NormalisedRows rows = norm.rows(all_rows_here(), /*needs_all=*/true);
  const Tensor before = rows.all().tensor();
  const Result result = run_backward(rows, norm);
  EXPECT_TRUE(before.is_same(result.rows));
  expect_the_bits_of_separate_passes(result, norm, all_rows_here());
}

}  // namespace
}  // namespace titanium::ops
