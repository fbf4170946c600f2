// Grouped products on tensor cores against products of each expert in fp64.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/grouped_multiply.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

using test::wide;

// Sums of a few thousand products in fp32.
const double kLimit = 16 * test::tolerance(at::kFloat);

struct Case {
  const char* name;
  int64_t out, in;
  std::vector<int32_t> ends;
  int64_t spare = 0;  // rows after the last end
};
const std::vector<Case> kCases = {
    {"tiles are full", 256, 128, {256, 512, 1024}},
    {"rows end anywhere", 448, 192, {1, 130, 130, 257, 700}, 37},
    {"one row", 64, 64, {0, 1, 1}, 200},
    {"no rows", 128, 64, {0, 0}, 64},
    {"an expert of 128 and fewer rows, several columns of tiles", 1408, 320, {64, 192, 193, 320, 449}, 5},
    {"columns of 64, 128 and 192", 320, 832, {300, 333}, 1},
    {"more tiles than clusters", 2304, 128, {900, 2000, 2001, 4096}}};

class KernelGroupedMultiply : public test::KernelTest {
 protected:
  void SetUp() override {
    test::KernelTest::SetUp();
    if (!IsSkipped() && !has_grouped_multiply()) GTEST_SKIP() << "the GPU is not of compute capability 9.0";
  }

  struct Operands {
    Tensor ends, x, dy, dy2, weight, weight2;
    int64_t rows;
    ExpertGroups groups;
  };
  // What lies after the last end is no number.
  Operands make(const Case& size) const {
    const auto experts = static_cast<int64_t>(size.ends.size());
    const int64_t count = size.ends.back(), rows = count + size.spare;
    const auto bf16 = [&](const Shape& shape) { return random(shape, at::kBFloat16); };
    Operands made{at::tensor(size.ends, at::kInt).to(gpu_),
                  bf16({rows, size.in}),
                  bf16({rows, size.out}),
                  bf16({rows, size.out}),
                  bf16({experts, size.out, size.in}),
                  bf16({experts, size.out, size.in}),
                  rows,
                  {}};
    for (const Tensor& tensor : {made.x, made.dy, made.dy2}) tensor.narrow(0, count, size.spare).fill_(std::nan(""));
    made.groups = {made.ends.data_ptr<int32_t>(), experts, rows, size.out, size.in};
    return made;
  }

  // use(expert, its rows of a tensor on the host in fp64).
  template <typename Use>
  static void for_each_expert(const Case& size, const Use& use) {
    int64_t begin = 0;
    for (size_t expert = 0; expert < size.ends.size(); ++expert) {
      const int64_t end = size.ends[expert];
      use(static_cast<int64_t>(expert), [=](const Tensor& rows) { return rows.narrow(0, begin, end - begin); });
      begin = end;
    }
  }
  static Tensor forward(const Case& size, const Tensor& x, const Tensor& weight) {
    const Tensor rows = wide(x), matrices = wide(weight), y = at::zeros({x.size(0), size.out}, at::kDouble);
    for_each_expert(size, [&](int64_t e, const auto& of) { of(y).copy_(at::matmul(of(rows), matrices[e].t())); });
    return y.narrow(0, 0, size.ends.back());
  }
  static Tensor input_grad(const Case& size, const Tensor& dy, const Tensor& weight) {
    const Tensor rows = wide(dy), matrices = wide(weight), dx = at::zeros({dy.size(0), size.in}, at::kDouble);
    for_each_expert(size, [&](int64_t e, const auto& of) { of(dx).copy_(at::matmul(of(rows), matrices[e])); });
    return dx.narrow(0, 0, size.ends.back());
  }
  static Tensor weight_grad(const Case& size, const Tensor& dy, const Tensor& x) {
    const Tensor grads = wide(dy), rows = wide(x);
    const Tensor sums = at::zeros({static_cast<int64_t>(size.ends.size()), size.out, size.in}, at::kDouble);
    for_each_expert(size, [&](int64_t e, const auto& of) { sums[e].copy_(at::matmul(of(grads).t(), of(rows))); });
    return sums;
  }
  // The rows that count are as expected, the others untouched.
  static void expect_rows(const Tensor& actual, const Tensor& expected) {
    const int64_t count = expected.size(0);
    EXPECT_TRUE(actual.narrow(0, count, actual.size(0) - count).isnan().all().item<bool>());
    if (count > 0) EXPECT_ROUNDED(actual.narrow(0, 0, count), expected, kLimit);
  }
};

TEST_F(KernelGroupedMultiply, ForwardMatchesEveryExpert) {
  for (const Case& size : kCases) {
    SCOPED_TRACE(size.name);
    const Operands with = make(size);
    const Tensor y = empty({with.rows, size.out}, at::kBFloat16);
    launch(grouped_forward, GroupedForwardArgs{with.groups, with.x.data_ptr(), with.weight.data_ptr(), y.data_ptr()});
    expect_rows(y, forward(size, with.x, with.weight));
  }
}

TEST_F(KernelGroupedMultiply, SwigluHasTheBitsOfItsParts) {
  for (const Case& size : kCases) {
    if (size.out % 128 != 0) continue;
    SCOPED_TRACE(size.name);
    const Operands with = make(size);
    const auto rows = [&] { return empty({with.rows, size.out}, at::kBFloat16); };
    const Tensor gate = rows(), up = rows(), product = rows(), apart = rows();
    launch(grouped_swiglu,
           GroupedSwigluArgs{with.groups, with.x.data_ptr(), with.weight.data_ptr(), with.weight2.data_ptr(),
                             gate.data_ptr(), up.data_ptr(), product.data_ptr()});
    expect_rows(gate, forward(size, with.x, with.weight));
    expect_rows(up, forward(size, with.x, with.weight2));
    launch(swiglu_forward, SwigluForwardArgs{ElementType::kBFloat16, gate.data_ptr(), up.data_ptr(), apart.data_ptr(),
                                             size.out, size.out, size.out, with.rows, size.out});
    const int64_t count = size.ends.back();
    EXPECT_TRUE(at::equal(product.narrow(0, 0, count), apart.narrow(0, 0, count)));
    EXPECT_TRUE(product.narrow(0, count, size.spare).isnan().all().item<bool>());
  }
}

TEST_F(KernelGroupedMultiply, InputGradIsTheSumOverOneOrTwoWeights) {
  for (const Case& size : kCases) {
    SCOPED_TRACE(size.name);
    const Operands with = make(size);
    const Tensor one = empty({with.rows, size.in}, at::kBFloat16), two = at::empty_like(one).fill_(std::nan(""));
    launch(grouped_input_grad, GroupedInputGradArgs{with.groups, with.dy.data_ptr(), with.weight.data_ptr(), nullptr,
                                                    nullptr, one.data_ptr()});
    launch(grouped_input_grad, GroupedInputGradArgs{with.groups, with.dy.data_ptr(), with.weight.data_ptr(),
                                                    with.dy2.data_ptr(), with.weight2.data_ptr(), two.data_ptr()});
    const Tensor first = input_grad(size, with.dy, with.weight);
    expect_rows(one, first);
    expect_rows(two, first + input_grad(size, with.dy2, with.weight2));
  }
}

TEST_F(KernelGroupedMultiply, WeightGradBeginsOrGoesOnWithTheSum) {
  for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << size.name << ", " << dtype);
      const Operands with = make(size);
      const Tensor sums = empty({with.groups.num_experts, size.out, size.in}, dtype);
      GroupedWeightGradArgs args{
          with.groups, with.dy.data_ptr(), with.x.data_ptr(), test::element_type(sums), sums.data_ptr(), false};
      launch(grouped_weight_grad, args);
      const Tensor expected = weight_grad(size, with.dy, with.x), first = wide(sums);
      EXPECT_ROUNDED(sums, expected, kLimit);
      args.accumulate = true;
      launch(grouped_weight_grad, args);
      EXPECT_ROUNDED(sums, first + expected, kLimit);
    }
  }
}

TEST_F(KernelGroupedMultiply, GivesTheSameBitsEachTime) {
  const Case& size = kCases.back();
  const Operands with = make(size);
  const auto run = [&] {
    const Tensor sums = empty({with.groups.num_experts, size.out, size.in}, at::kFloat);
    launch(grouped_weight_grad, GroupedWeightGradArgs{with.groups, with.dy.data_ptr(), with.x.data_ptr(),
                                                      ElementType::kFloat32, sums.data_ptr(), false});
    return sums;
  };
  const Tensor first = run();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(run(), first));
}

}  // namespace
}  // namespace titanium::kernels
