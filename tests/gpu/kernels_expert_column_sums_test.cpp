#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/expert_column_sums.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

struct Case {
  int64_t rows, dim, experts, used;  // choices fall on the first `used` experts
  int64_t shift = 0;
};
const std::vector<Case> kCases = {{1, 1, 1, 1},      {7, 5, 3, 3},       {1000, 264, 32, 32}, {3000, 96, 16, 1},
                                  {500, 2880, 4, 4}, {2048, 130, 60, 7}, {33, 40, 300, 300},  {700, 24, 5, 5, 1},
                                  {0, 64, 8, 8},     {5000, 8, 1, 1}};

class KernelExpertColumnSums : public test::KernelTest {
 protected:
  void sum(const Tensor& rows, const Tensor& ends, const Tensor& weights, const Tensor& choice_of_row,
           const Tensor& sums, bool accumulate) const {
    const Tensor room = scratch(expert_column_sums_scratch_bytes(sums.size(0), sums.size(1)));
    launch(expert_column_sums,
           ExpertColumnSumsArgs{element_type(rows), element_type(sums), rows.data_ptr(), rows.stride(0),
                                ends.data_ptr<int32_t>(), weights.defined() ? weights.data_ptr<float>() : nullptr,
                                choice_of_row.defined() ? choice_of_row.data_ptr<int32_t>() : nullptr, sums.data_ptr(),
                                accumulate, sums.size(0), sums.size(1), static_cast<float*>(room.data_ptr())});
  }
};

TEST_F(KernelExpertColumnSums, SumsTheRowsOfEachExpert) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Dtype sum_dtype : {at::kFloat, at::kBFloat16}) {
      for (const int weighing : {0, 1, 2}) {
        for (const Case& size : kCases) {
          SCOPED_TRACE(testing::Message() << dtype << " to " << sum_dtype << ", " << size.rows << " x " << size.dim
                                          << " of " << size.experts << " experts, weighing " << weighing);
          const Tensor rows = random({size.rows + 3, size.dim}, dtype, size.shift);
          rows.narrow(0, size.rows, 3).fill_(std::nan(""));  // rows of nobody
          const Tensor counts = at::bincount(at::randint(size.used, {size.rows}, at::kLong), {}, size.experts);
          const Tensor ends = counts.cumsum(0).to(at::kInt).to(gpu_);
          const Tensor weights = weighing > 0 ? random({size.rows}, at::kFloat) : Tensor();
          const Tensor order = weighing > 1 ? at::randperm(size.rows, at::kInt).to(gpu_) : Tensor();
          Tensor terms = wide(rows).narrow(0, 0, size.rows);
          if (weighing == 1) terms = terms * wide(weights).unsqueeze(1);
          if (weighing == 2) terms = terms * wide(weights).index_select(0, order.cpu().to(at::kLong)).unsqueeze(1);
          Tensor expected = at::zeros({size.experts, size.dim}, at::kDouble);
          expected.index_add_(0, at::arange(size.experts, at::kLong).repeat_interleave(counts), terms);
          const Tensor sums = empty({size.experts, size.dim}, sum_dtype), again = sums.clone();
          sum(rows, ends, weights, order, sums, false);
          EXPECT_ROUNDED(sums, expected, 4 * test::tolerance(at::kFloat));
          sum(rows, ends, weights, order, again, false);
          EXPECT_TRUE(at::equal(sums, again));
          const Tensor more = random({size.experts, size.dim}, sum_dtype);
          const Tensor expected_more = expected + wide(more);
          sum(rows, ends, weights, order, more, true);
          EXPECT_ROUNDED(more, expected_more, 4 * test::tolerance(at::kFloat));
        }
      }
    }
  }
}

}  // namespace
}  // namespace titanium::kernels
