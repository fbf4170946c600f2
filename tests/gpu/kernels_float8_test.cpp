#include <ATen/ops/equal.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/float8.h"
#include "titanium/kernels/rms_norm.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

using test::element_type;

// A matrix in a buffer whose rows are `gap` elements longer and which begins `shift` elements after an aligned address.
struct Case {
  int64_t rows, dim;
  int64_t gap = 0, shift = 0;
};
// Whole tiles, parts of tiles, words of 16 rows and 8 columns and neither, and rows longer than registers hold.
const std::vector<Case> kCases = {{1, 1},          {33, 7},      {1000, 130},  {33, 4097},    {1000, 4096},
                                  {1, 4096},       {16, 8},      {128, 128},   {144, 136},    {2000, 256},
                                  {400, 14336},    {48, 264, 8}, {48, 264, 3}, {160, 512, 0}, {96, 256, 8},
                                  {160, 96, 0, 1}, {17, 1024},   {32, 40000}};

struct Format {
  Float8Format format;
  Dtype dtype;
  double largest;
};
const std::vector<Format> kFormats = {{Float8Format::kE4m3, at::kFloat8_e4m3fn, 448.0},
                                      {Float8Format::kE5m2, at::kFloat8_e5m2, 57344.0}};

Tensor expected_scale(const Tensor& amax, const Format& format, bool power_of_two) {
  const Tensor bounded = amax.to(at::kFloat).to(at::kDouble).clamp_min(1e-12);
  const Tensor scale = at::reciprocal(bounded).mul(format.largest).to(at::kFloat);
  return power_of_two ? scale.log2().floor().exp2() : scale;
}

Tensor expected_bytes(const Tensor& x, const Tensor& scale, const Format& format) {
  return x.to(at::kFloat).mul(scale).clamp(-format.largest, format.largest).to(format.dtype).view(at::kByte);
}

bool same_numbers(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && (a.eq(b) | (a.isnan() & b.isnan())).all().item<bool>();
}

std::string describe(const Tensor& x, const Format& format) {
  std::ostringstream text;
  text << x.scalar_type() << " " << x.sizes() << " strides " << x.strides() << " to " << format.dtype;
  return text.str();
}

class KernelFloat8 : public test::KernelTest {
 protected:
  Tensor matrix(const Case& size, Dtype dtype) const {
    return random({size.rows, size.dim + size.gap}, dtype, size.shift).narrow(1, 0, size.dim);
  }
  Tensor floats(const Shape& shape, double value = 0) const {
    return at::full(shape, value, at::TensorOptions(at::kFloat).device(gpu_));
  }
  Tensor bytes(const Shape& shape) const {
    return at::full(shape, 0xAB, at::TensorOptions(at::kByte).device(gpu_));  // what is not written is seen
  }

  Tensor maximum(const Tensor& x, double before = 0) const {
    const Tensor amax = floats({}, before);
    launch(absolute_maximum, AbsoluteMaximumArgs{element_type(x), x.data_ptr(), x.stride(0), x.size(0), x.size(1),
                                                 amax.data_ptr<float>()});
    return amax;
  }
  Tensor maxima(const Tensor& x) const {
    const Tensor amax = floats({x.size(1)});
    launch(column_maxima,
           ColumnMaximaArgs{element_type(x), x.data_ptr(), x.stride(0), x.size(0), x.size(1), amax.data_ptr<float>()});
    return amax;
  }

  struct Quantized {
    Tensor values, transposed, reciprocal;
    Float8Output out;
  };
  Quantized room(int64_t rows, int64_t dim, const Tensor& amax, const Format& format, bool power_of_two,
                 bool values = true, bool transposed = true) const {
    Quantized q = {bytes({rows, dim}), bytes({dim, rows}), floats({}, -1), {}};
    q.out = {format.format,
             power_of_two,
             amax.data_ptr<float>(),
             values ? q.values.data_ptr() : nullptr,
             transposed ? q.transposed.data_ptr() : nullptr,
             q.reciprocal.data_ptr<float>()};
    return q;
  }
  Quantized quantize(const Tensor& x, const Tensor& amax, const Format& format, bool power_of_two = false,
                     bool values = true, bool transposed = true) const {
    const Quantized q = room(x.size(0), x.size(1), amax, format, power_of_two, values, transposed);
    launch(quantize_tensor,
           QuantizeTensorArgs{element_type(x), x.data_ptr(), x.stride(0), x.size(0), x.size(1), q.out});
    return q;
  }
  void expect_quantized(const Quantized& q, const Tensor& x, const Tensor& amax, const Format& format,
                        bool power_of_two = false) const {
    const Tensor scale = expected_scale(amax, format, power_of_two), expected = expected_bytes(x, scale, format);
    EXPECT_TRUE(at::equal(q.values, expected));
    EXPECT_TRUE(at::equal(q.transposed, expected.t()));
    EXPECT_TRUE(same_numbers(q.reciprocal, scale.reciprocal()));
  }

  struct Lines {
    Tensor bytes, reciprocals, column_amax;
  };
  Lines by_rows(const Tensor& x, const Format& format, bool with_columns) const {
    const Lines out = {bytes({x.size(0), x.size(1)}), floats({x.size(0)}, -1), floats({x.size(1)})};
    launch(quantize_rows, QuantizeRowsArgs{element_type(x), format.format, x.data_ptr(), x.stride(0), x.size(0),
                                           x.size(1), out.bytes.data_ptr(), out.reciprocals.data_ptr<float>(),
                                           with_columns ? out.column_amax.data_ptr<float>() : nullptr});
    return out;
  }
  Lines by_columns(const Tensor& x, const Tensor& amax, const Format& format) const {
    const Lines out = {bytes({x.size(1), x.size(0)}), floats({x.size(1)}, -1), amax};
    launch(quantize_columns,
           QuantizeColumnsArgs{element_type(x), format.format, x.data_ptr(), x.stride(0), x.size(0), x.size(1),
                               amax.data_ptr<float>(), out.bytes.data_ptr(), out.reciprocals.data_ptr<float>()});
    return out;
  }
  void expect_lines(const Tensor& x, const Format& format) const {
    const Tensor row_scale = expected_scale(x.abs().amax(1, true), format, true);
    for (const bool with_columns : {false, true}) {
      const Lines rows = by_rows(x, format, with_columns);
      EXPECT_TRUE(at::equal(rows.bytes, expected_bytes(x, row_scale, format)));
      EXPECT_TRUE(same_numbers(rows.reciprocals, row_scale.reciprocal().squeeze(1)));
      const Tensor column_amax = x.abs().amax(0).to(at::kFloat);
      EXPECT_TRUE(same_numbers(rows.column_amax, with_columns ? column_amax : floats({x.size(1)})));
    }
    const Tensor column_scale = expected_scale(x.abs().amax(0, true), format, true);
    const Lines columns = by_columns(x, maxima(x), format);
    EXPECT_TRUE(at::equal(columns.bytes, expected_bytes(x, column_scale, format).t()));
    EXPECT_TRUE(same_numbers(columns.reciprocals, column_scale.reciprocal().squeeze(0)));
  }

  // Each with something at both ends of what scales can be.
  std::vector<Tensor> extremes(const Case& size, Dtype dtype) const {
    std::vector<Tensor> all;
    const float inf = std::numeric_limits<float>::infinity();
    for (const double value : {0.0, 1e-30, 3e38, double{inf}, -double{inf}, std::nan("")}) {
      const Tensor x = matrix(size, dtype);
      if (value == 0.0) x.zero_();
      x[size.rows / 2][size.dim / 3] = value;
      all.push_back(x);
    }
    all.push_back(matrix(size, dtype).mul_(1e-38));
    all.push_back(matrix(size, dtype).mul_(3e37));
    return all;
  }
};

TEST_F(KernelFloat8, MaximaAreThoseOfLibtorch) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      const Tensor x = matrix(size, dtype);
      SCOPED_TRACE(testing::Message() << dtype << " " << x.sizes() << " strides " << x.strides());
      EXPECT_TRUE(same_numbers(maximum(x), x.abs().amax().to(at::kFloat)));
      EXPECT_TRUE(same_numbers(maxima(x), x.abs().amax(0).to(at::kFloat)));
    }
    for (const Case& size : {Case{33, 264}, Case{5, 13}}) {
      for (const Tensor& x : extremes(size, dtype)) {
        EXPECT_TRUE(same_numbers(maximum(x), x.abs().amax().to(at::kFloat)));
        EXPECT_TRUE(same_numbers(maxima(x), x.abs().amax(0).to(at::kFloat)));
      }
    }
  }
}

TEST_F(KernelFloat8, AMaximumIsOnlyEverRaised) {
  const Tensor x = matrix({64, 64}, at::kBFloat16).clamp_(-2, 2);
  EXPECT_EQ(maximum(x, 100).item<float>(), 100);
  EXPECT_EQ(maximum(x.narrow(0, 0, 0), 0.5).item<float>(), 0.5);
}

TEST_F(KernelFloat8, ATensorGetsTheBitsOfTheFormulasBothWays) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Format& format : kFormats) {
      for (const Case& size : kCases) {
        const Tensor x = matrix(size, dtype), amax = maximum(x);
        SCOPED_TRACE(describe(x, format));
        for (const bool power_of_two : {false, true})
          expect_quantized(quantize(x, amax, format, power_of_two), x, amax, format, power_of_two);
      }
    }
  }
}

TEST_F(KernelFloat8, ATensorOfExtremesGetsTheBitsOfTheFormulas) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Format& format : kFormats) {
      for (const Case& size : {Case{48, 264}, Case{33, 77}}) {
        for (const Tensor& x : extremes(size, dtype)) {
          const Tensor amax = maximum(x);
          SCOPED_TRACE(testing::Message() << describe(x, format) << " amax " << amax.item<float>());
          expect_quantized(quantize(x, amax, format), x, amax, format);
        }
      }
    }
  }
}

TEST_F(KernelFloat8, WhatIsBeyondTheGivenMaximumIsBounded) {
  const Tensor x = matrix({48, 264}, at::kBFloat16), amax = floats({}, 0.25);
  for (const Format& format : kFormats) expect_quantized(quantize(x, amax, format), x, amax, format);
}

TEST_F(KernelFloat8, OneOutputAloneIsTheSame) {
  for (const Case& size : {Case{160, 520}, Case{33, 77}}) {
    const Tensor x = matrix(size, at::kBFloat16), amax = maximum(x);
    for (const Format& format : kFormats) {
      const Quantized both = quantize(x, amax, format), values = quantize(x, amax, format, false, true, false),
                      transposed = quantize(x, amax, format, false, false, true);
      EXPECT_TRUE(at::equal(values.values, both.values));
      EXPECT_TRUE(at::equal(transposed.transposed, both.transposed));
      EXPECT_TRUE(values.transposed.eq(0xAB).all().item<bool>());
      EXPECT_TRUE(transposed.values.eq(0xAB).all().item<bool>());
    }
  }
}

TEST_F(KernelFloat8, AnEmptyTensorHasAReciprocal) {
  const Tensor amax = floats({});
  const Quantized q = quantize(matrix({0, 64}, at::kBFloat16), amax, kFormats[0]);
  EXPECT_TRUE(same_numbers(q.reciprocal, expected_scale(amax, kFormats[0], false).reciprocal()));
}

TEST_F(KernelFloat8, ANormIsQuantisedAsIfItHadBeenStored) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Dtype weight_dtype : {at::kFloat, at::kBFloat16}) {
      for (const Case& size : kCases) {
        const Tensor x = matrix({size.rows, size.dim, 0, size.shift}, dtype);
        const Tensor rstd = random({size.rows}, at::kFloat).abs(), weight = random({size.dim}, weight_dtype);
        const Tensor y = empty({size.rows, size.dim}, dtype);
        launch(rms_norm_apply,
               RmsNormApplyArgs{element_type(x), element_type(weight), x.data_ptr(), rstd.data_ptr<float>(),
                                weight.data_ptr(), y.data_ptr(), size.rows, size.dim});
        const Tensor amax = maximum(y);
        for (const Format& format : kFormats) {
          SCOPED_TRACE(testing::Message() << describe(x, format) << " weight " << weight_dtype);
          const Quantized q = room(size.rows, size.dim, amax, format, false);
          launch(quantize_rms_norm,
                 QuantizeRmsNormArgs{element_type(x), element_type(weight), x.data_ptr(), rstd.data_ptr<float>(),
                                     weight.data_ptr(), size.rows, size.dim, q.out});
          expect_quantized(q, y, amax, format);
        }
      }
    }
  }
}

TEST_F(KernelFloat8, RowsAndColumnsGetTheBitsOfTheFormulas) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Format& format : kFormats) {
      for (const Case& size : kCases) {
        const Tensor x = matrix(size, dtype);
        SCOPED_TRACE(describe(x, format));
        expect_lines(x, format);
      }
      for (const Case& size : {Case{48, 264}, Case{33, 77}}) {
        for (const Tensor& x : extremes(size, dtype)) {
          SCOPED_TRACE(describe(x, format));
          expect_lines(x, format);
        }
      }
    }
  }
}

// There the fp32 logarithm may round up to the next power.
TEST_F(KernelFloat8, ScalesBesidePowersOfTwoAreThoseOfTheFormulas) {
  const Tensor x = matrix({256, 64}, at::kFloat).mul_(1e-3);
  for (int64_t row = 0; row < 256; ++row) {
    float value = std::ldexp(1.75F, static_cast<int>(row / 4) - 32);
    for (int64_t i = 0; i < row % 4; ++i) value = std::nextafter(value, std::numeric_limits<float>::infinity());
    x[row].mul_(value);
    x[row][5] = value;
  }
  for (const Format& format : kFormats) {
    expect_lines(x, format);
    expect_lines(x.t().contiguous(), format);
  }
}

}  // namespace
}  // namespace titanium::kernels
