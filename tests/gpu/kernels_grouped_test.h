// What the tests of grouped products share: sizes, and products of each expert in fp64.
#pragma once

#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/grouped_multiply.h"

namespace titanium::test {

struct GroupedCase {
  const char* name;
  int64_t out, in;
  std::vector<int32_t> ends;
  int64_t spare = 0;  // rows after the last end

  int64_t experts() const { return static_cast<int64_t>(ends.size()); }
  int64_t count() const { return ends.back(); }
  int64_t rows() const { return count() + spare; }
};
inline const std::vector<GroupedCase> kGroupedCases = {
    {"tiles are full", 256, 256, {256, 512, 1024}},
    {"rows end anywhere", 448, 192, {1, 130, 130, 257, 700}, 37},
    {"one row", 64, 64, {0, 1, 1}, 200},
    {"no rows", 128, 64, {0, 0}, 64},
    {"one expert has all rows", 384, 1408, {0, 0, 777, 777}, 3},
    {"an expert of 128 and fewer rows, several columns of tiles", 1408, 320, {64, 192, 193, 320, 449}, 5},
    {"columns of 64, 128 and 192", 320, 832, {300, 333}, 1},
    {"more tiles than clusters", 2304, 128, {900, 2000, 2001, 4096}}};

class GroupedKernelTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped() && !kernels::has_grouped_multiply()) GTEST_SKIP() << "the GPU is not of compute capability 9.0";
  }
  Tensor ends_on_gpu(const std::vector<int32_t>& ends) const { return at::tensor(ends, at::kInt).to(gpu_); }

  // use(expert, its rows of a tensor).
  template <typename Use>
  static void for_each_expert(const GroupedCase& size, const Use& use) {
    int64_t begin = 0;
    for (int64_t expert = 0; expert < size.experts(); ++expert) {
      const int64_t end = size.ends[expert];
      use(expert, [=](const Tensor& all) { return all.narrow(0, begin, end - begin); });
      begin = end;
    }
  }
  // Rows [R, K] times the matrix of their expert [E, K, N], all on the host in fp64; without spare rows.
  static Tensor product(const GroupedCase& size, const Tensor& rows, const Tensor& matrices) {
    const Tensor y = at::zeros({rows.size(0), matrices.size(2)}, at::kDouble);
    for_each_expert(size, [&](int64_t e, const auto& of) { of(y).copy_(at::matmul(of(rows), matrices[e])); });
    return y.narrow(0, 0, size.count());
  }
  // The rows that count are as expected, the others untouched.
  static void expect_rows(const Tensor& actual, const Tensor& expected, double limit) {
    const int64_t count = expected.size(0);
    EXPECT_TRUE(actual.narrow(0, count, actual.size(0) - count).isnan().all().item<bool>());
    if (count > 0) EXPECT_ROUNDED(actual.narrow(0, 0, count), expected, limit);
  }
};

}  // namespace titanium::test
