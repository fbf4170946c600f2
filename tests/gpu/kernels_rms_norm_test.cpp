#include <ATen/ops/rsqrt.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/rms_norm.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

constexpr float kEps = 1e-5F;
const double kLimit = test::tolerance(at::kFloat);

struct Case {
  int64_t rows, dim;
  int64_t shift = 0;  // elements between an aligned address and the data
};
// Every size of group, sizes between them, rows longer than registers hold, odd sizes, addresses that are not aligned.
const std::vector<Case> kCases = {{1, 1},     {3, 130},    {5, 8},      {4100, 128},  {263, 256}, {257, 512},
                                  {33, 1000}, {900, 2048}, {517, 4096}, {19, 8192},   {5, 16384}, {3, 32768},
                                  {2, 40000}, {70, 4097},  {9, 256, 1}, {300, 77, 3}, {1, 4096}};

class KernelRmsNorm : public test::KernelTest {
 protected:
  struct Inputs {
    Tensor x, residual, weight, dy;
  };
  Inputs inputs(const Case& size, Dtype dtype, Dtype weight_dtype) const {
    return {random({size.rows, size.dim}, dtype, size.shift), random({size.rows, size.dim}, dtype, size.shift),
            random({size.dim}, weight_dtype, size.shift), random({size.rows, size.dim}, dtype, size.shift)};
  }
  struct Outputs {
    Tensor y, rstd;
  };
  Outputs forward(const Tensor& x, const Tensor& weight) const {
    const Outputs out = {empty(x.sizes().vec(), x.scalar_type()), empty({x.size(0)}, at::kFloat)};
    launch(rms_norm_forward,
           RmsNormForwardArgs{element_type(x), element_type(weight), x.data_ptr(), weight.data_ptr(), out.y.data_ptr(),
                              out.rstd.data_ptr<float>(), x.size(0), x.size(1), kEps});
    return out;
  }
  Tensor backward(const Inputs& in, const Tensor& rstd, const Tensor& around, const Tensor& dx, const Tensor& dweight,
                  bool accumulate, const Tensor& y = {}) const {
    const Tensor room = scratch(rms_norm_backward_scratch_bytes(in.x.size(0), in.x.size(1)));
    launch(rms_norm_backward,
           RmsNormBackwardArgs{element_type(in.x), element_type(in.weight), element_type(dweight), in.dy.data_ptr(),
                               in.x.data_ptr(), rstd.data_ptr<float>(), in.weight.data_ptr(),
                               around.defined() ? around.data_ptr() : nullptr, dx.data_ptr(), dweight.data_ptr(),
                               accumulate, static_cast<float*>(room.data_ptr()), in.x.size(0), in.x.size(1),
                               /*amax=*/nullptr, y.defined() ? y.data_ptr() : nullptr});
    return dx;
  }
  Tensor apply(const Inputs& in, const Tensor& rstd, const Tensor& y) const {
    launch(rms_norm_apply,
           RmsNormApplyArgs{element_type(in.x), element_type(in.weight), in.x.data_ptr(), rstd.data_ptr<float>(),
                            in.weight.data_ptr(), y.data_ptr(), in.x.size(0), in.x.size(1)});
    return y;
  }
};

Tensor reference_rstd(const Tensor& x) { return at::rsqrt(x.square().mean(1, true) + static_cast<double>(kEps)); }

TEST_F(KernelRmsNorm, ForwardMatchesTheDefinitionOnAllSizes) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Dtype weight_dtype : {at::kFloat, at::kBFloat16}) {
      for (const Case& size : kCases) {
        SCOPED_TRACE(testing::Message() << dtype << ", weight " << weight_dtype << ", " << size.rows << " x "
                                        << size.dim);
        const Inputs in = inputs(size, dtype, weight_dtype);
        const Outputs out = forward(in.x, in.weight);
        const Tensor x = wide(in.x), rstd = reference_rstd(x);
        EXPECT_ROUNDED(out.rstd.unsqueeze(1), rstd, kLimit);
        EXPECT_ROUNDED(out.y, x * rstd * wide(in.weight), kLimit);
      }
    }
  }
}

TEST_F(KernelRmsNorm, ApplyGivesTheBitsOfTheForward) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.dim);
      const Inputs in = inputs(size, dtype, at::kFloat);
      const Outputs out = forward(in.x, in.weight);
      EXPECT_TRUE(at::equal(apply(in, out.rstd, empty({size.rows, size.dim}, dtype)), out.y));
    }
  }
}

TEST_F(KernelRmsNorm, BackwardMatchesTheDefinitionOnAllSizes) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.dim);
      const Inputs in = inputs(size, dtype, at::kFloat);
      const Tensor rstd = forward(in.x, in.weight).rstd, dweight = empty({size.dim}, at::kFloat);
      const Tensor dx = backward(in, rstd, in.residual, empty({size.rows, size.dim}, dtype), dweight, false);
      const Tensor x = wide(in.x), scale = reference_rstd(x), normalised = x * scale;
      const Tensor grad = wide(in.dy) * wide(in.weight);
      const Tensor expected = (grad - normalised * (grad * normalised).mean(1, true)) * scale;
      EXPECT_ROUNDED(dx, expected + wide(in.residual), 2 * kLimit);
      const Tensor expected_dweight = (wide(in.dy) * normalised).sum(0);
      EXPECT_ROUNDED(dweight, expected_dweight, 2 * kLimit);
      const Tensor alone = backward(in, rstd, {}, empty({size.rows, size.dim}, dtype), dweight, true);
      // One column: the gradient is 0 but for eps, and nothing is left to compare with.
      if (size.dim > 1) EXPECT_ROUNDED(alone, expected, 2 * kLimit);
      EXPECT_ROUNDED(dweight, 2 * expected_dweight, 2 * kLimit);
    }
  }
}

TEST_F(KernelRmsNorm, BackwardGivesTheBitsOfApplyAndItsOwnAreTheSameWithThem) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Dtype weight_dtype : {at::kFloat, at::kBFloat16}) {
      for (const Case& size : kCases) {
        SCOPED_TRACE(testing::Message() << dtype << ", weight " << weight_dtype << ", " << size.rows << " x "
                                        << size.dim);
        const Inputs in = inputs(size, dtype, weight_dtype);
        const auto room = [&] { return empty({size.rows, size.dim}, dtype); };
        const Tensor rstd = forward(in.x, in.weight).rstd, expected = apply(in, rstd, room());
        const Tensor alone = empty({size.dim}, at::kFloat), dweight = empty({size.dim}, at::kFloat), y = room();
        const Tensor dx = backward(in, rstd, in.residual, room(), alone, false);
        EXPECT_TRUE(at::equal(backward(in, rstd, in.residual, room(), dweight, false, y), dx));
        EXPECT_TRUE(at::equal(dweight, alone));
        EXPECT_TRUE(at::equal(y, expected));
      }
    }
  }
}

TEST_F(KernelRmsNorm, BackwardMayWriteYOverWhatItReads) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.dim);
      const Inputs in = inputs(size, dtype, at::kFloat);
      const auto room = [&] { return empty({size.rows, size.dim}, dtype); };
      const Tensor rstd = forward(in.x, in.weight).rstd, expected = apply(in, rstd, room());
      const Tensor dweight = empty({size.dim}, at::kFloat);
      const Tensor dx = backward(in, rstd, in.residual, room(), dweight, false);
      for (const Tensor Inputs::* place : {&Inputs::dy, &Inputs::x, &Inputs::residual}) {
        // A copy where it was, so that the same kernel reads it.
        const Tensor y = in.*place, before = y.clone();
        EXPECT_TRUE(at::equal(backward(in, rstd, in.residual, room(), dweight, false, y), dx));
        EXPECT_TRUE(at::equal(y, expected));
        y.copy_(before);
      }
      const Tensor y = room();  // dx over x, from which y is made
      EXPECT_TRUE(at::equal(backward(in, rstd, in.residual, in.x, dweight, false, y), dx));
      EXPECT_TRUE(at::equal(y, expected));
    }
  }
}

TEST_F(KernelRmsNorm, BackwardTakesAnyAddressOfY) {
  const Inputs in = inputs({40, 2048}, at::kBFloat16, at::kFloat);
  const Tensor rstd = forward(in.x, in.weight).rstd, dweight = empty({2048}, at::kFloat);
  const Tensor y = random({40, 2048}, at::kBFloat16, /*shift=*/1);
  backward(in, rstd, in.residual, empty({40, 2048}, at::kBFloat16), dweight, false, y);
  EXPECT_TRUE(at::equal(y, apply(in, rstd, empty({40, 2048}, at::kBFloat16))));
}

TEST_F(KernelRmsNorm, BackwardMayOverwriteItsInputsAndRepeatsItsBits) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : {Case{700, 4096}, {4100, 256}, {50, 999}}) {
      const Inputs in = inputs(size, dtype, dtype);
      const Tensor rstd = forward(in.x, in.weight).rstd;
      const Tensor first = empty({size.dim}, dtype), second = empty({size.dim}, dtype);
      const Tensor dx = backward(in, rstd, in.residual, empty({size.rows, size.dim}, dtype), first, false);
      EXPECT_TRUE(at::equal(backward(in, rstd, in.residual, in.dy.clone(), second, false), dx));
      EXPECT_TRUE(at::equal(first, second));
      backward(in, rstd, in.residual, in.residual, second, false);
      EXPECT_TRUE(at::equal(in.residual, dx));
    }
  }
}

}  // namespace
}  // namespace titanium::kernels
