// Grouped products of float8 on tensor cores against products of each expert in fp64. Operands are small whole numbers
// and scales powers of two, so that the tensor cores, which keep 14 bits of a sum, have nothing to round.
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/grouped_float8.h"

namespace titanium::kernels {
namespace {

using test::wide;

constexpr double kExact = 1e-7;
constexpr auto kE4m3 = at::kFloat8_e4m3fn;
constexpr int64_t kNaN = 0x7F;

struct Case {
  const char* name;
  int64_t out, in;
  std::vector<int32_t> ends;
  int64_t spare = 0;  // rows after the last end
};
const std::vector<Case> kCases = {
    {"tiles are full", 256, 256, {256, 512, 1024}},
    {"rows end anywhere", 448, 192, {1, 130, 130, 257, 700}, 37},
    {"one row", 64, 64, {0, 1, 1}, 200},
    {"no rows", 128, 64, {0, 0}, 64},
    {"one expert has all rows", 384, 1408, {0, 0, 777, 777}, 3},
    {"an expert of 128 and fewer rows, several columns of tiles", 1408, 320, {64, 192, 193, 320, 449}, 5},
    {"columns of 64, 128 and 192", 320, 832, {300, 333}, 1},
    {"more tiles than clusters", 2304, 128, {900, 2000, 2001, 4096}}};

class KernelGroupedFloat8 : public test::KernelTest {
 protected:
  void SetUp() override {
    test::KernelTest::SetUp();
    if (!IsSkipped() && !has_grouped_multiply()) GTEST_SKIP() << "the GPU is not of compute capability 9.0";
  }

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
  Operand rows(const Case& size, int64_t depth, int64_t most = 3) const {
    const int64_t count = size.ends.back();
    Operand made = operand({count + size.spare, depth}, most);
    made.data.view(at::kByte).narrow(0, count, size.spare).fill_(kNaN);
    made.reciprocals.narrow(0, count, size.spare).fill_(std::nan(""));
    return made;
  }
  Tensor ends(const std::vector<int32_t>& of) const { return at::tensor(of, at::kInt).to(gpu_); }
  static int64_t experts(const Case& size) { return static_cast<int64_t>(size.ends.size()); }

  // use(expert, its rows of a tensor).
  template <typename Use>
  static void for_each_expert(const Case& size, const Use& use) {
    int64_t begin = 0;
    for (int64_t expert = 0; expert < experts(size); ++expert) {
      const int64_t end = size.ends[expert];
      use(expert, [=](const Tensor& all) { return all.narrow(0, begin, end - begin); });
      begin = end;
    }
  }
  static Tensor product(const Case& size, const Operand& x, const Operand& matrices) {
    const Tensor y = at::zeros({x.meaning.size(0), matrices.meaning.size(1)}, at::kDouble);
    for_each_expert(
        size, [&](int64_t e, const auto& of) { of(y).copy_(at::matmul(of(x.meaning), matrices.meaning[e].t())); });
    return y.narrow(0, 0, size.ends.back());
  }
  static Float8Groups groups(const Case& size, const Tensor& ends, const Operand& x, const Operand& matrices) {
    return {ends.data_ptr<int32_t>(), experts(size), x.data.size(0), matrices.data.size(1), x.data.size(1)};
  }
  // The rows that count are as expected, the others untouched.
  static void expect_rows(const Tensor& actual, const Tensor& expected, double limit = kExact) {
    const int64_t count = expected.size(0);
    EXPECT_TRUE(actual.narrow(0, count, actual.size(0) - count).isnan().all().item<bool>());
    if (count > 0) EXPECT_ROUNDED(actual.narrow(0, 0, count), expected, limit);
  }
};

TEST_F(KernelGroupedFloat8, RowsTimesMatrices) {
  for (const Case& size : kCases) {
    SCOPED_TRACE(size.name);
    const Tensor ends = this->ends(size.ends);
    const Operand x = rows(size, size.in), weight = operand({experts(size), size.out, size.in});
    const Tensor y = empty({x.data.size(0), size.out}, at::kBFloat16);
    launch(grouped_float8, GroupedFloat8Args{groups(size, ends, x, weight), x.lines(), weight.lines(), y.data_ptr()});
    expect_rows(y, product(size, x, weight));
  }
}

TEST_F(KernelGroupedFloat8, TwoProductsOfTheSameRows) {
  for (const Case& size : kCases) {
    if (size.out % 128 != 0) continue;
    SCOPED_TRACE(size.name);
    const Tensor ends = this->ends(size.ends);
    const Shape shape{experts(size), size.out, size.in};
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
  for (const Case& size : kCases) {
    SCOPED_TRACE(size.name);
    const Tensor ends = this->ends(size.ends);
    const Shape shape{experts(size), size.in, size.out};
    const Operand x = rows(size, size.out, 1), x2 = rows(size, size.out, 1), first = operand(shape, 1),
                  second = operand(shape, 1);
    const Tensor y = empty({x.data.size(0), size.in}, at::kBFloat16);
    launch(grouped_float8, GroupedFloat8Args{groups(size, ends, x, first), x.lines(), first.lines(), y.data_ptr(),
                                             x2.lines(), second.lines()});
    expect_rows(y, product(size, x, first) + product(size, x2, second), 1e-3);
  }
}

TEST_F(KernelGroupedFloat8, ScalesOfTwoProductsMayBeFarApart) {
  const Case size{"", 128, 64, {100}};
  const Tensor ends = this->ends(size.ends);
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
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << size.name << ", " << dtype);
      // Each expert's part of a line is filled up with zeros; what lies after the last one is no number.
      const int64_t length = float8_line_length(size.ends.back() + size.spare, experts(size));
      const auto bytes = [&](int64_t lines) {
        return at::full({lines, length}, kNaN, at::TensorOptions(at::kByte).device(gpu_)).view(kE4m3);
      };
      const Tensor dy = bytes(size.out), x = bytes(size.in);
      const auto zeros = [&](const Shape& shape) {
        return at::zeros(shape, at::TensorOptions(at::kFloat).device(gpu_));
      };
      const Tensor dy_scales = zeros({experts(size), size.out}), x_scales = zeros({experts(size), size.in});
      const Tensor expected = at::zeros({experts(size), size.out, size.in}, at::kDouble);
      std::vector<int32_t> line_ends;
      int64_t line = 0;
      for_each_expert(size, [&](int64_t e, const auto& of) {
        const int64_t count = of(at::zeros({size.ends.back()})).size(0);
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
      const Tensor ends_on_gpu = ends(line_ends), sums = empty({experts(size), size.out, size.in}, dtype);
      GroupedFloat8WeightGradArgs args{.line_ends = ends_on_gpu.data_ptr<int32_t>(),
                                       .num_experts = experts(size),
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
  const Case& size = kCases.back();
  const Tensor ends = this->ends(size.ends);
  const Operand x = rows(size, size.in), weight = operand({experts(size), size.out, size.in});
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
