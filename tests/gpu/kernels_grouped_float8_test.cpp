// Grouped products of float8 on tensor cores against products of each expert in fp64. Operands are small whole numbers
// and scales powers of two, so that the tensor cores, which keep 14 bits of a sum, have nothing to round.
#include <ATen/ops/randint.h>

#include "tests/gpu/kernels_grouped_test.h"
#include "titanium/kernels/grouped_float8.h"

namespace titanium::kernels {
namespace {

using test::GroupedCase;
using test::kGroupedCases;
using test::wide;

constexpr double kExact = 1e-7;
constexpr auto kE4m3 = at::kFloat8_e4m3fn;
constexpr int64_t kNaN = 0x7F;

class KernelGroupedFloat8 : public test::GroupedKernelTest {
 protected:
  // Lines, and what they stand for on the host.
  struct Operand {
    Tensor data, reciprocals, meaning;
    Float8Lines lines() const { return {data.data_ptr(), reciprocals.data_ptr<float>()}; }
  };
  // One scale for each line, from 2^-most to 2^most.
  Operand operand(const Shape& shape, int64_t most = 3) const {
    const Shape lines(shape.begin(), shape.end() - 1);
    const Tensor values = at::randint(-3, 4, shape, at::kFloat);
    const Tensor reciprocals = at::randint(-most, most + 1, lines, at::kFloat).exp2_();
    return {values.to(kE4m3).to(gpu_), reciprocals.to(gpu_),
            values.to(at::kDouble) * reciprocals.to(at::kDouble).unsqueeze(-1)};
  }
  // Rows of experts: what lies after the last end is no number.
  Operand rows(const GroupedCase& size, int64_t depth, int64_t most = 3) const {
    Operand made = operand({size.rows(), depth}, most);
    made.data.view(at::kByte).narrow(0, size.count(), size.spare).fill_(kNaN);
    made.reciprocals.narrow(0, size.count(), size.spare).fill_(std::nan(""));
    return made;
  }
  static Tensor product(const GroupedCase& size, const Operand& x, const Operand& matrices) {
    return GroupedKernelTest::product(size, x.meaning, matrices.meaning.transpose(1, 2));
  }
  static Float8Groups groups(const GroupedCase& size, const Tensor& ends, const Operand& x, const Operand& matrices) {
    return {ends.data_ptr<int32_t>(), size.experts(), x.data.size(0), matrices.data.size(1), x.data.size(1)};
  }
  static void expect_rows(const Tensor& actual, const Tensor& expected, double limit = kExact) {
    GroupedKernelTest::expect_rows(actual, expected, limit);
  }
};

TEST_F(KernelGroupedFloat8, RowsTimesMatrices) {
  for (const GroupedCase& size : kGroupedCases) {
    SCOPED_TRACE(size.name);
    const Tensor ends = ends_on_gpu(size.ends);
    const Operand x = rows(size, size.in), weight = operand({size.experts(), size.out, size.in});
    const Tensor y = empty({x.data.size(0), size.out}, at::kBFloat16);
    launch(grouped_float8, GroupedFloat8Args{groups(size, ends, x, weight), x.lines(), weight.lines(), y.data_ptr()});
    expect_rows(y, product(size, x, weight));
  }
}

TEST_F(KernelGroupedFloat8, TwoProductsOfTheSameRows) {
  for (const GroupedCase& size : kGroupedCases) {
    if (size.out % 128 != 0) continue;
    SCOPED_TRACE(size.name);
    const Tensor ends = ends_on_gpu(size.ends);
    const Shape shape{size.experts(), size.out, size.in};
    const Operand x = rows(size, size.in), first = operand(shape), second = operand(shape);
    const Tensor a = empty({x.data.size(0), size.out}, at::kBFloat16);
    const Tensor b = empty({x.data.size(0), size.out}, at::kBFloat16);
    launch(grouped_float8_pair, GroupedFloat8PairArgs{groups(size, ends, x, first), x.lines(), first.lines(),
                                                      second.lines(), a.data_ptr(), b.data_ptr()});
    expect_rows(a, product(size, x, first));
    expect_rows(b, product(size, x, second));
  }
}

TEST_F(KernelGroupedFloat8, TwoProductsInOneSum) {
  for (const GroupedCase& size : kGroupedCases) {
    SCOPED_TRACE(size.name);
    const Tensor ends = ends_on_gpu(size.ends);
    const Shape shape{size.experts(), size.in, size.out};
    const Operand x = rows(size, size.out, 1), x2 = rows(size, size.out, 1), first = operand(shape, 1),
                  second = operand(shape, 1);
    const Tensor y = empty({x.data.size(0), size.in}, at::kBFloat16);
    launch(grouped_float8, GroupedFloat8Args{groups(size, ends, x, first), x.lines(), first.lines(), y.data_ptr(),
                                             x2.lines(), second.lines()});
    expect_rows(y, product(size, x, first) + product(size, x2, second), 1e-3);
  }
}

TEST_F(KernelGroupedFloat8, ScalesOfTwoProductsMayBeFarApart) {
  const GroupedCase size{"", 128, 64, {100}};
  const Tensor ends = ends_on_gpu(size.ends);
  const auto scaled = [](Operand made, double by) {
    made.reciprocals.mul_(by), made.meaning.mul_(by);
    return made;
  };
  for (const double by : {0x1p-90, 0x1p90}) {
    const Operand x = rows(size, size.out), first = operand({1, size.in, size.out});
    const Operand x2 = scaled(rows(size, size.out), by), second = operand({1, size.in, size.out});
    const Tensor y = empty({100, size.in}, at::kBFloat16);
    launch(grouped_float8, GroupedFloat8Args{groups(size, ends, x, first), x.lines(), first.lines(), y.data_ptr(),
                                             x2.lines(), second.lines()});
    expect_rows(y, product(size, x, first) + product(size, x2, second), 1e-3);
  }
}

TEST_F(KernelGroupedFloat8, WeightGradBeginsOrGoesOnWithTheSum) {
  for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
    for (const GroupedCase& size : kGroupedCases) {
      SCOPED_TRACE(testing::Message() << size.name << ", " << dtype);
      // Each expert's part of a line is filled up with zeros; what lies after the last one is no number.
      const int64_t length = float8_line_length(size.rows(), size.experts());
      const auto bytes = [&](int64_t lines) {
        return at::full({lines, length}, kNaN, at::TensorOptions(at::kByte).device(gpu_)).view(kE4m3);
      };
      const Tensor dy = bytes(size.out), x = bytes(size.in);
      const auto zeros = [&](const Shape& shape) {
        return at::zeros(shape, at::TensorOptions(at::kFloat).device(gpu_));
      };
      const Tensor dy_scales = zeros({size.experts(), size.out}), x_scales = zeros({size.experts(), size.in});
      const Tensor expected = at::zeros({size.experts(), size.out, size.in}, at::kDouble);
      std::vector<int32_t> line_ends;
      int64_t line = 0;
      for_each_expert(size, [&](int64_t e, const auto& of) {
        const int64_t count = of(at::zeros({size.count()})).size(0);
        const int64_t filled = (count + kFloat8GroupMultiple - 1) / kFloat8GroupMultiple * kFloat8GroupMultiple;
        const auto put = [&](const Tensor& lines, const Tensor& scales, int64_t dim) {
          const Operand made = operand({dim, count});
          lines.view(at::kByte).narrow(1, line, filled).zero_();
          lines.view(at::kByte).narrow(1, line, count).copy_(made.data.view(at::kByte));
          if (count > 0) scales[e].copy_(made.reciprocals);
          return made.meaning;
        };
        expected[e].copy_(at::matmul(put(dy, dy_scales, size.out), put(x, x_scales, size.in).t()));
        line_ends.push_back(static_cast<int32_t>(line += filled));
      });
      const Tensor ends = ends_on_gpu(line_ends), sums = empty({size.experts(), size.out, size.in}, dtype);
      GroupedFloat8WeightGradArgs args{.line_ends = ends.data_ptr<int32_t>(),
                                       .num_experts = size.experts(),
                                       .length = length,
                                       .out = size.out,
                                       .in = size.in,
                                       .dy = {dy.data_ptr(), dy_scales.data_ptr<float>()},
                                       .x = {x.data_ptr(), x_scales.data_ptr<float>()},
                                       .sum_type = test::element_type(sums),
                                       .sums = sums.data_ptr(),
                                       .accumulate = false};
      launch(grouped_float8_weight_grad, args);
      const Tensor first = wide(sums);
      EXPECT_ROUNDED(sums, expected, kExact);
      args.accumulate = true;
      launch(grouped_float8_weight_grad, args);
      EXPECT_ROUNDED(sums, first + expected, kExact);
    }
  }
}

TEST_F(KernelGroupedFloat8, GivesTheSameBitsEachTime) {
  const GroupedCase& size = kGroupedCases.back();
  const Tensor ends = ends_on_gpu(size.ends);
  const Operand x = rows(size, size.in), weight = operand({size.experts(), size.out, size.in});
  const auto run = [&] {
    const Tensor y = at::zeros({x.data.size(0), size.out}, at::TensorOptions(at::kBFloat16).device(gpu_));
    launch(grouped_float8, GroupedFloat8Args{groups(size, ends, x, weight), x.lines(), weight.lines(), y.data_ptr()});
    return y;
  };
  const Tensor first = run();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(run(), first));
}

}  // namespace
}  // namespace titanium::kernels
