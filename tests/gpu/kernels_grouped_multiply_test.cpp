// Grouped products on tensor cores against products of each expert in fp64.
#include <ATen/ops/empty_like.h>

#include "tests/gpu/kernels_grouped_test.h"
#include "titanium/base/error.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

using test::GroupedCase;
using test::kGroupedCases;
using test::wide;

// Sums of a few thousand products in fp32.
const double kLimit = 16 * test::tolerance(at::kFloat);

class KernelGroupedMultiply : public test::GroupedKernelTest {
 protected:
  struct Operands {
    Tensor ends, x, dy, dy2, weight, weight2;
    int64_t rows;
    ExpertGroups groups;
  };
  // What lies after the last end is no number.
  Operands make(const GroupedCase& size) const {
    const int64_t experts = size.experts(), rows = size.rows();
    const auto bf16 = [&](const Shape& shape) { return random(shape, at::kBFloat16); };
    Operands made{ends_on_gpu(size.ends),
                  bf16({rows, size.in}),
                  bf16({rows, size.out}),
                  bf16({rows, size.out}),
                  bf16({experts, size.out, size.in}),
                  bf16({experts, size.out, size.in}),
                  rows,
                  {}};
    for (const Tensor& tensor : {made.x, made.dy, made.dy2})
      tensor.narrow(0, size.count(), size.spare).fill_(std::nan(""));
    made.groups = {made.ends.data_ptr<int32_t>(), experts, rows, size.out, size.in};
    return made;
  }

  static Tensor forward(const GroupedCase& size, const Tensor& x, const Tensor& weight) {
    return product(size, wide(x), wide(weight).transpose(1, 2));
  }
  static Tensor input_grad(const GroupedCase& size, const Tensor& dy, const Tensor& weight) {
    return product(size, wide(dy), wide(weight));
  }
  static Tensor weight_grad(const GroupedCase& size, const Tensor& dy, const Tensor& x) {
    const Tensor grads = wide(dy), rows = wide(x);
    const Tensor sums = at::zeros({size.experts(), size.out, size.in}, at::kDouble);
    for_each_expert(size, [&](int64_t e, const auto& of) { sums[e].copy_(at::matmul(of(grads).t(), of(rows))); });
    return sums;
  }
  static void expect_rows(const Tensor& actual, const Tensor& expected) {
    GroupedKernelTest::expect_rows(actual, expected, kLimit);
  }
};

TEST_F(KernelGroupedMultiply, ForwardMatchesEveryExpert) {
  for (const GroupedCase& size : kGroupedCases) {
    SCOPED_TRACE(size.name);
    const Operands with = make(size);
    const Tensor y = empty({with.rows, size.out}, at::kBFloat16);
    launch(grouped_forward, GroupedForwardArgs{with.groups, with.x.data_ptr(), with.weight.data_ptr(), y.data_ptr()});
    expect_rows(y, forward(size, with.x, with.weight));
  }
}

TEST_F(KernelGroupedMultiply, SwigluHasTheBitsOfItsParts) {
  for (const GroupedCase& size : kGroupedCases) {
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
    const int64_t count = size.count();
    EXPECT_TRUE(at::equal(product.narrow(0, 0, count), apart.narrow(0, 0, count)));
    EXPECT_TRUE(product.narrow(0, count, size.spare).isnan().all().item<bool>());
  }
}

TEST_F(KernelGroupedMultiply, InputGradIsTheSumOverOneOrTwoWeights) {
  for (const GroupedCase& size : kGroupedCases) {
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
    for (const GroupedCase& size : kGroupedCases) {
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
  const GroupedCase& size = kGroupedCases.back();
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

TEST_F(KernelGroupedMultiply, AnArrayThatTheDriverCannotMapIsAnErrorThatNamesIt) {
  const GroupedCase size{"", 64, 128, {100}};
  const Operands with = make(size);
  const Tensor y = empty({with.rows, size.out}, at::kBFloat16);
  const auto* shifted = static_cast<const char*>(with.x.data_ptr()) + 2;
  try {
    launch(grouped_forward, GroupedForwardArgs{with.groups, shifted, with.weight.data_ptr(), y.data_ptr()});
    FAIL() << "rows that do not begin at a multiple of 16 bytes were taken";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part : {"(CUresult 1)", "1 x 100 x 128 elements of 2 bytes", "boxes of 128 x 64"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  }
  EXPECT_TRUE(y.isnan().all().item<bool>());
}

}  // namespace
}  // namespace titanium::kernels
