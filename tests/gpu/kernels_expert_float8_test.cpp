// Columns of the rows of experts in float8, and SwiGLU between products of float8, against the formulas and against the
// kernels that leave bfloat16.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/expert_float8.h"
#include "titanium/kernels/expert_swiglu_float8.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

using test::element_type;

Tensor scale_of(const Tensor& amax) {
  const Tensor bounded = amax.to(at::kDouble).clamp_min(1e-12);
  return bounded.reciprocal().mul(448.0).to(at::kFloat).log2().floor().exp2();
}
Tensor bytes_of(const Tensor& x, const Tensor& scale) {
  return x.to(at::kFloat).mul(scale).clamp(-448, 448).to(at::kFloat8_e4m3fn).view(at::kByte);
}

struct Case {
  std::vector<int32_t> ends;
  int64_t dim;
  int64_t spare = 0;  // rows after the last end
};
const std::vector<Case> kCases = {{{1}, 8},
                                  {{128, 256, 512}, 128},
                                  {{0, 0, 300, 300, 301, 557}, 136},
                                  {{0, 0}, 64, 5},
                                  {{77, 1000, 1003}, 1408, 9},
                                  {{0, 2000, 2000}, 264},
                                  {{1664, 3329, 9000}, 72},
                                  {{5, 5, 700}, 2056, 2}};

class KernelExpertFloat8 : public test::KernelTest {
 protected:
  Tensor ends_on_gpu(const Case& size) const { return at::tensor(size.ends, at::kInt).to(gpu_); }
  Tensor floats(const Shape& shape) const { return at::zeros(shape, at::TensorOptions(at::kFloat).device(gpu_)); }
  Tensor bytes(const Shape& shape) const {
    return at::full(shape, 0xAB, at::TensorOptions(at::kByte).device(gpu_));  // what is not written is seen
  }
  static int64_t groups(const Case& size) { return static_cast<int64_t>(size.ends.size()); }
  static int64_t rows(const Case& size) { return size.ends.back() + size.spare; }

  Tensor line_ends(const Case& size, const Tensor& ends) const {
    const Tensor out = at::empty_like(ends);
    launch(float8_line_ends, Float8LineEndsArgs{ends.data_ptr<int32_t>(), out.data_ptr<int32_t>(), groups(size)});
    return out;
  }

  // Lines [dim, length] of rows [rows, dim].
  static void expect_lines(const Case& size, const Tensor& x, const Tensor& line_ends, const Tensor& lines,
                           const Tensor& reciprocals) {
    int64_t begin = 0, line = 0;
    for (int64_t group = 0; group < groups(size); ++group) {
      const int64_t count = size.ends[group] - begin, filled = (count + 127) / 128 * 128;
      EXPECT_EQ(line_ends[group].item<int32_t>(), line + filled);
      if (count > 0) {
        const Tensor of_group = x.narrow(0, begin, count), scale = scale_of(of_group.abs().amax(0));
        EXPECT_TRUE(at::equal(lines.narrow(1, line, count), bytes_of(of_group, scale).t())) << "group " << group;
        EXPECT_TRUE(at::equal(reciprocals[group], scale.reciprocal())) << "group " << group;
      }
      EXPECT_EQ(lines.narrow(1, line + count, filled - count).to(at::kLong).sum().item<int64_t>(), 0);
      begin += count, line += filled;
    }
    EXPECT_TRUE(lines.narrow(1, line, lines.size(1) - line).eq(0xAB).all().item<bool>());
  }
};

TEST_F(KernelExpertFloat8, ColumnsOfGroupsBecomeLines) {
  for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
    for (const Case& size : kCases) {
      for (const int64_t top_k : {0, 1, 3}) {  // 0: the rows lie in memory
        SCOPED_TRACE(testing::Message() << dtype << ", " << groups(size) << " groups x " << size.dim << ", " << top_k);
        const int64_t tokens = top_k == 0 ? rows(size) : (rows(size) + top_k - 1) / top_k;
        const Tensor x = random({tokens, size.dim}, dtype);
        const Tensor choices = at::randperm(tokens * std::max<int64_t>(top_k, 1), at::kLong).narrow(0, 0, rows(size));
        const Tensor choice_of_row = choices.to(at::kInt).to(gpu_), ends = ends_on_gpu(size);
        const Tensor ends_of_lines = line_ends(size, ends), reciprocals = floats({groups(size), size.dim});
        const Tensor lines = bytes({size.dim, float8_line_length(rows(size), groups(size))});
        launch(quantize_groups,
               QuantizeGroupsArgs{.type = element_type(x),
                                  .x = x.data_ptr(),
                                  .choice_of_row = top_k == 0 ? nullptr : choice_of_row.data_ptr<int32_t>(),
                                  .top_k = top_k,
                                  .ends = ends.data_ptr<int32_t>(),
                                  .line_ends = ends_of_lines.data_ptr<int32_t>(),
                                  .groups = groups(size),
                                  .rows = rows(size),
                                  .dim = size.dim,
                                  .lines = lines.data_ptr<uint8_t>(),
                                  .length = lines.size(1),
                                  .reciprocals = reciprocals.data_ptr<float>()});
        const Tensor taken = top_k == 0 ? x : x.index_select(0, choices.to(gpu_).div(top_k, "floor"));
        expect_lines(size, taken, ends_of_lines, lines, reciprocals);
      }
    }
  }
}

TEST_F(KernelExpertFloat8, ColumnsOfMatricesBecomeLines) {
  for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t rows : {16, 144, 256, 272, 1408, 2048, 2880}) {
      for (const int64_t dim : {8, 200}) {
        SCOPED_TRACE(testing::Message() << dtype << ", " << rows << " x " << dim);
        constexpr int64_t kMatrices = 3;
        const Tensor x = random({kMatrices, rows, dim}, dtype), lines = bytes({kMatrices, dim, rows});
        const Tensor reciprocals = floats({kMatrices, dim});
        launch(quantize_matrices, QuantizeMatricesArgs{element_type(x), x.data_ptr(), kMatrices, rows, dim,
                                                       lines.data_ptr<uint8_t>(), reciprocals.data_ptr<float>()});
        const Tensor scale = scale_of(x.abs().amax(1));
        EXPECT_TRUE(at::equal(lines, bytes_of(x, scale.unsqueeze(1)).transpose(1, 2)));
        EXPECT_TRUE(at::equal(reciprocals, scale.reciprocal()));
      }
    }
  }
}

TEST_F(KernelExpertFloat8, WhatIsNotFiniteIsNeverMadeFinite) {
  const Case size{{3, 200}, 16};
  const Tensor x = random({200, 16}, at::kBFloat16), ends = ends_on_gpu(size), ends_of_lines = line_ends(size, ends);
  x[1][2] = std::nan("");
  x[100][5] = std::numeric_limits<float>::infinity();
  const Tensor lines = bytes({16, 384}), reciprocals = floats({2, 16});
  launch(quantize_groups, QuantizeGroupsArgs{element_type(x), x.data_ptr(), nullptr, 1, ends.data_ptr<int32_t>(),
                                             ends_of_lines.data_ptr<int32_t>(), 2, 200, 16, lines.data_ptr<uint8_t>(),
                                             384, reciprocals.data_ptr<float>()});
  const Tensor meaning = lines.view(at::kFloat8_e4m3fn).to(at::kFloat);
  EXPECT_TRUE((meaning[2].narrow(0, 0, 3) * reciprocals[0][2]).isnan().all().item<bool>());
  EXPECT_TRUE((meaning[5].narrow(0, 128, 197) * reciprocals[1][5]).isnan().all().item<bool>());
  EXPECT_TRUE(meaning[3].isfinite().narrow(0, 0, 3).all().item<bool>());
}

struct Rows {
  Tensor values, reciprocals;
  Float8RowsOutput out() const { return {values.data_ptr(), reciprocals.data_ptr<float>()}; }
  void expect(const Tensor& x) const {
    const Tensor scale = scale_of(x.abs().amax(1));
    EXPECT_TRUE(at::equal(values, bytes_of(x, scale.unsqueeze(1))));
    EXPECT_TRUE(at::equal(reciprocals, scale.reciprocal()));
  }
};

TEST_F(KernelExpertFloat8, SwigluForwardIsQuantisedByRows) {
  for (const auto& [count, dim] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {77, 1408}, {130, 2048}, {33, 2056}, {9, 8192}}) {
    SCOPED_TRACE(testing::Message() << count << " x " << dim);
    const Tensor gate = random({count, dim}, at::kBFloat16).mul_(3), up = random({count, dim}, at::kBFloat16);
    const Tensor product = at::empty_like(gate);
    launch(swiglu_forward, SwigluForwardArgs{ElementType::kBFloat16, gate.data_ptr(), up.data_ptr(), product.data_ptr(),
                                             dim, dim, dim, count, dim});
    const Rows rows{bytes({count, dim}), floats({count})};
    launch(swiglu_float8_forward, SwigluFloat8ForwardArgs{gate.data_ptr(), up.data_ptr(), count, dim, rows.out()});
    rows.expect(product);
  }
}

TEST_F(KernelExpertFloat8, SwigluBackwardIsQuantisedBothWays) {
  for (Case size : kCases) {
    if (size.ends.back() == 0) continue;
    size.spare = 0;
    for (const bool weighs : {false, true}) {
      SCOPED_TRACE(testing::Message() << groups(size) << " groups, " << rows(size) << " x " << size.dim << ", "
                                      << weighs);
      const int64_t count = rows(size), dim = size.dim, experts = groups(size);
      const auto random_rows = [&] { return random({count, dim}, at::kBFloat16); };
      const Tensor grad = random_rows().mul_(1e-3), gate = random_rows().mul_(3), up = random_rows();
      const Tensor weights = random({count}, at::kFloat), grad_weights = floats({count}), same = floats({count});
      const auto weighing = [&](const Tensor& into) {
        return weighs ? RowWeights{weights.data_ptr<float>(), nullptr, into.data_ptr<float>()} : RowWeights{};
      };
      const Tensor dgate = at::empty_like(gate), dup = at::empty_like(gate), product = at::empty_like(gate);
      launch(expert_swiglu_backward,
             ExpertSwigluBackwardArgs{ElementType::kBFloat16, grad.data_ptr(), gate.data_ptr(), up.data_ptr(),
                                      dgate.data_ptr(), dup.data_ptr(), product.data_ptr(), dim, dim, dim, dim, dim,
                                      dim, count, dim, nullptr, weighing(same)});
      const Tensor ends = ends_on_gpu(size), ends_of_lines = line_ends(size, ends);
      const int64_t length = float8_line_length(count, experts);
      const Tensor lines = bytes({3, dim, length}), amax = floats({3, experts, dim}),
                   reciprocals = floats({3, experts, dim});
      const Rows dgate_rows{bytes({count, dim}), floats({count})}, dup_rows{bytes({count, dim}), floats({count})};
      launch(swiglu_float8_backward,
             SwigluFloat8BackwardArgs{grad.data_ptr(), gate.data_ptr(), up.data_ptr(), ends.data_ptr<int32_t>(),
                                      ends_of_lines.data_ptr<int32_t>(), experts, count, dim, weighing(grad_weights),
                                      dgate_rows.out(), dup_rows.out(), lines.data_ptr<uint8_t>(), length,
                                      amax.data_ptr<float>(), reciprocals.data_ptr<float>()});
      dgate_rows.expect(dgate);
      dup_rows.expect(dup);
      expect_lines(size, dgate, ends_of_lines, lines[0], reciprocals[0]);
      expect_lines(size, dup, ends_of_lines, lines[1], reciprocals[1]);
      expect_lines(size, product, ends_of_lines, lines[2], reciprocals[2]);
      EXPECT_CLOSE(grad_weights, same, 1e-5);
    }
  }
}

}  // namespace
}  // namespace titanium::kernels
