#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/order_parts.h"
#include "titanium/ops/experts/dispatch.h"

namespace titanium::kernels {
namespace {

using KernelOrderParts = test::KernelTest;

// The definition on the CPU sorts the experts of the rows.
void expect_order(const Tensor& counts_nE, const Device& gpu) {
  const auto rows = counts_nE.sum().item<int64_t>();
  const ops::Dispatch expected = ops::order_parts(counts_nE, rows), found = ops::order_parts(counts_nE.to(gpu), rows);
  EXPECT_TRUE(at::equal(found.row_of_choice_R.cpu(), expected.row_of_choice_R));
  EXPECT_TRUE(at::equal(found.choice_of_row_R.cpu(), expected.choice_of_row_R));
  EXPECT_TRUE(at::equal(found.ends_E.cpu(), expected.ends_E));
}

TEST_F(KernelOrderParts, SortsByExpertAndThenBySource) {
  for (const Shape& shape : {Shape{1, 1}, Shape{2, 3}, Shape{8, 16}, Shape{64, 4}, Shape{2, 256}}) {
    for (const int64_t most : {1, 2, 40, 700}) {
      SCOPED_TRACE(testing::Message() << shape[0] << " sources, " << shape[1] << " experts, fewer than " << most);
      expect_order(at::randint(most, shape, at::kInt), gpu_);
    }
  }
}

TEST_F(KernelOrderParts, OnePartMayHaveAllRows) {
  for (const int64_t part : {0, 5, 11}) {
    const Tensor counts = at::zeros({3, 4}, at::kInt);
    counts.flatten()[part] = 100000;
    expect_order(counts, gpu_);
  }
}

}  // namespace
}  // namespace titanium::kernels
