#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sort.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/sort_by_expert.h"

namespace titanium::kernels {
namespace {

class KernelSortByExpert : public test::KernelTest {
 protected:
  Tensor numbers(int64_t count) const { return at::full({count}, -7, at::TensorOptions(at::kInt).device(gpu_)); }

  // Compares with a stable sort.
  void expect_sorted(const Tensor& experts, int64_t num_experts) const {
    const int64_t choices = experts.numel();
    const Tensor input = experts.to(gpu_, at::kInt), rows = numbers(choices), order = numbers(choices),
                 ends = numbers(num_experts);
    const int64_t bytes = sort_by_expert_scratch_bytes(choices, num_experts);
    const Tensor room = at::full({bytes / 4 + 64}, -9, at::TensorOptions(at::kInt).device(gpu_));
    launch(sort_by_expert,
           SortByExpertArgs{input.data_ptr<int32_t>(), rows.data_ptr<int32_t>(), order.data_ptr<int32_t>(),
                            ends.data_ptr<int32_t>(), choices, num_experts, room.data_ptr<int32_t>()});
    const Tensor expected_order =
        std::get<1>(at::sort(experts.to(at::kLong), /*stable=*/true, /*dim=*/0, /*descending=*/false));
    Tensor expected_rows = at::empty({choices}, at::kLong);
    expected_rows.scatter_(0, expected_order, at::arange(choices, at::kLong));
    const Tensor counts = at::bincount(experts.to(at::kLong), {}, num_experts);
    EXPECT_TRUE(at::equal(order.cpu().to(at::kLong), expected_order));
    EXPECT_TRUE(at::equal(rows.cpu().to(at::kLong), expected_rows));
    EXPECT_TRUE(at::equal(ends.cpu().to(at::kLong), counts.cumsum(0)));
    EXPECT_TRUE((room.narrow(0, bytes / 4, 64) == -9).all().item<bool>());
  }
};

struct Case {
  int64_t choices, experts;
};
// Less than a warp, a block, several; more than 128 blocks of the least size, where runs become longer.
const std::vector<Case> kCases = {{1, 1},       {5, 8},        {31, 3},        {2048, 64},     {2049, 16},
                                  {4097, 512},  {98304, 64},   {131072, 128},  {32768, 32},    {8192, 16},
                                  {99991, 100}, {262145, 333}, {1048577, 128}, {3000001, 512}, {2500000, 5}};

TEST_F(KernelSortByExpert, IsAStableSort) {
  for (const Case& size : kCases) {
    SCOPED_TRACE(testing::Message() << size.choices << " choices of " << size.experts);
    expect_sorted(at::randint(size.experts, {size.choices}, at::kInt), size.experts);
  }
}

TEST_F(KernelSortByExpert, AllChoicesOfOneExpert) {
  for (const int64_t expert : {0, 17, 63}) {
    for (const int64_t choices : {1, 4099, 400000}) {
      SCOPED_TRACE(testing::Message() << choices << " choices of expert " << expert);
      expect_sorted(at::full({choices}, expert, at::kInt), 64);
    }
  }
}

TEST_F(KernelSortByExpert, ExpertsWithoutChoices) {
  expect_sorted(at::randint(10, {7777}, at::kInt) * 37 + 5, 512);
  expect_sorted(at::randint(2, {50000}, at::kInt) * 127, 128);
}

TEST_F(KernelSortByExpert, NoChoicesAtAll) { expect_sorted(at::empty({0}, at::kInt), 40); }

TEST_F(KernelSortByExpert, RunsOfEqualExpertsAndTurns) {
  expect_sorted(at::arange(98304, at::kInt).remainder(64), 64);
  expect_sorted(at::arange(98304, at::kInt).floor_divide(1536), 64);
}

}  // namespace
}  // namespace titanium::kernels
