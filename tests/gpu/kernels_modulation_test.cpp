// The kernels of a diffusion transformer against their definitions in fp64: modulated norms, gates, GELU, column sums.
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/column_sums.h"
#include "titanium/kernels/gate.h"
#include "titanium/kernels/gelu.h"
#include "titanium/kernels/modulated_norm.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

constexpr float kEps = 1e-6F;
const double kLimit = test::tolerance(at::kFloat);

struct Case {
  int64_t samples, rows, dim;  // rows of a sample
};
// One row, fewer rows than a block treats, more than the device holds at once, and blocks that are not full.
const std::vector<Case> kCases = {{1, 1, 64}, {3, 5, 128}, {2, 700, 3072}, {8, 256, 1024}, {5, 33, 520}, {1, 3000, 72}};

class KernelModulation : public test::KernelTest {
 protected:
  Tensor rows(const Case& size, Dtype dtype) const { return random({size.samples, size.rows, size.dim}, dtype); }
  Tensor vectors(const Case& size, Dtype dtype) const { return random({size.samples, size.dim}, dtype); }
};

template <typename Check>
void for_all_cases(const std::vector<Case>& cases, const Check& check) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : cases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.samples << " x " << size.rows << " x " << size.dim);
      check(dtype, size);
    }
  }
}

struct Normalised {
  Tensor y, mean, rstd;
};
Normalised reference_norm(const Tensor& x) {
  const Tensor centred = x - x.mean(2, true);
  const Tensor rstd = at::rsqrt(centred.square().mean(2, true) + static_cast<double>(kEps));
  return {centred * rstd, x.mean(2), rstd.squeeze(2)};
}

TEST_F(KernelModulation, NormForwardAndBackwardAreTheDefinition) {
  for_all_cases(kCases, [&](Dtype dtype, const Case& size) {
    ASSERT_TRUE(has_modulated_norm(element_type(rows(size, dtype)), size.dim));
    const Tensor x = rows(size, dtype) + 0.5, shift = vectors(size, dtype), scale = vectors(size, dtype),
                 dy = rows(size, dtype), around = rows(size, dtype);
    const Tensor y = empty(x.sizes().vec(), dtype), mean = empty({size.samples, size.rows}, at::kFloat),
                 rstd = empty({size.samples, size.rows}, at::kFloat);
    const int64_t all = size.samples * size.rows;
    launch(modulated_norm_forward,
           ModulatedNormForwardArgs{element_type(x), x.data_ptr(), shift.data_ptr(), scale.data_ptr(), y.data_ptr(),
                                    mean.data_ptr<float>(), rstd.data_ptr<float>(), all, size.rows, size.dim, kEps});
    const Normalised expected = reference_norm(wide(x));
    const Tensor factor = wide(scale).unsqueeze(1) + 1;
    EXPECT_ROUNDED(mean, expected.mean, kLimit);
    EXPECT_ROUNDED(rstd, expected.rstd, 4 * kLimit);
    EXPECT_ROUNDED(y, factor * expected.y + wide(shift).unsqueeze(1), 4 * kLimit);
    for (const bool with_around : {false, true}) {
      const Tensor dx = empty(x.sizes().vec(), dtype), dshift = empty(shift.sizes().vec(), dtype),
                   dscale = empty(shift.sizes().vec(), dtype);
      ModulatedNormBackwardArgs args{element_type(x),
                                     dy.data_ptr(),
                                     x.data_ptr(),
                                     mean.data_ptr<float>(),
                                     rstd.data_ptr<float>(),
                                     scale.data_ptr(),
                                     with_around ? around.data_ptr() : nullptr,
                                     dx.data_ptr(),
                                     dshift.data_ptr(),
                                     dscale.data_ptr(),
                                     nullptr,
                                     all,
                                     size.rows,
                                     size.dim};
      const Tensor room = empty({modulated_norm_backward_scratch_bytes(args) / 4}, at::kFloat);
      args.scratch = room.data_ptr<float>();
      launch(modulated_norm_backward, args);
      const Tensor grad = wide(dy) * factor;
      const Tensor through =
          (grad - grad.mean(2, true) - expected.y * (grad * expected.y).mean(2, true)) * expected.rstd.unsqueeze(2);
      EXPECT_ROUNDED(dx, with_around ? through + wide(around) : through, 8 * kLimit);
      EXPECT_ROUNDED(dshift, wide(dy).sum(1), 4 * kLimit);
      EXPECT_ROUNDED(dscale, (wide(dy) * expected.y).sum(1), 8 * kLimit);
    }
  });
}

TEST_F(KernelModulation, NormHasTheSizesOfRowsThatItSays) {
  EXPECT_TRUE(has_modulated_norm(ElementType::kBFloat16, 8192));
  EXPECT_FALSE(has_modulated_norm(ElementType::kBFloat16, 8200));
  EXPECT_FALSE(has_modulated_norm(ElementType::kBFloat16, 12));
  EXPECT_TRUE(has_modulated_norm(ElementType::kFloat32, 12));
}

TEST_F(KernelModulation, GateForwardAndBackwardAreTheDefinition) {
  std::vector<Case> cases = kCases;
  cases.push_back({3, 50, 77});  // no vectors
  for_all_cases(cases, [&](Dtype dtype, const Case& size) {
    const Tensor residual = rows(size, dtype), x = rows(size, dtype), dy = rows(size, dtype),
                 gate = vectors(size, dtype);
    const Tensor y = empty(x.sizes().vec(), dtype), dx = empty(x.sizes().vec(), dtype),
                 dgate = empty(gate.sizes().vec(), dtype);
    const int64_t all = size.samples * size.rows;
    launch(gate_forward, GateForwardArgs{element_type(x), residual.data_ptr(), x.data_ptr(), gate.data_ptr(),
                                         y.data_ptr(), all, size.rows, size.dim});
    const Tensor factor = wide(gate).unsqueeze(1);
    EXPECT_ROUNDED(y, wide(residual) + factor * wide(x), kLimit);
    GateBackwardArgs args{element_type(x),  dy.data_ptr(), x.data_ptr(), gate.data_ptr(), dx.data_ptr(),
                          dgate.data_ptr(), nullptr,       all,          size.rows,       size.dim};
    const Tensor room = empty({gate_backward_scratch_bytes(args) / 4}, at::kFloat);
    args.scratch = room.data_ptr<float>();
    launch(gate_backward, args);
    EXPECT_ROUNDED(dx, wide(dy) * factor, kLimit);
    EXPECT_ROUNDED(dgate, (wide(dy) * wide(x)).sum(1), 4 * kLimit);
  });
}

TEST_F(KernelModulation, GeluReadsAndWritesColumnsOfWiderRows) {
  for_all_cases({{1, 300, 512}, {1, 7, 72}, {1, 33, 77}}, [&](Dtype dtype, const Case& size) {
    for (const int64_t beside : {0, 64, 3}) {
      const Tensor wide_rows = random({size.rows, size.dim + beside}, dtype) * 3;
      const Tensor x = wide_rows.narrow(1, beside, size.dim), dy = random({size.rows, size.dim}, dtype);
      const Tensor into = empty({size.rows, size.dim + beside}, dtype), y = into.narrow(1, beside, size.dim),
                   dx = empty({size.rows, size.dim}, dtype);
      launch(gelu_forward, GeluForwardArgs{element_type(x), x.data_ptr(), x.stride(0), y.data_ptr(), y.stride(0),
                                           size.rows, size.dim});
      EXPECT_ROUNDED(y, at::gelu(wide(x), "tanh"), 4 * kLimit);
      EXPECT_TRUE(beside == 0 || into.narrow(1, 0, beside).isnan().all().item<bool>());  // nothing else is written
      launch(gelu_backward, GeluBackwardArgs{element_type(x), dy.data_ptr(), dy.stride(0), x.data_ptr(), x.stride(0),
                                             dx.data_ptr(), dx.stride(0), size.rows, size.dim});
      EXPECT_ROUNDED(dx, at::gelu_backward(wide(dy), wide(x), "tanh"), 4 * kLimit);
    }
  });
}

TEST_F(KernelModulation, GeluOfLargeInputsIsExact) {
  const Tensor x = at::tensor({-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4, 3e38}, at::kFloat).to(gpu_).view({1, 8});
  const Tensor y = empty({1, 8}, at::kFloat), dy = at::ones_like(x), dx = empty({1, 8}, at::kFloat);
  launch(gelu_forward, GeluForwardArgs{element_type(x), x.data_ptr(), 8, y.data_ptr(), 8, 1, 8});
  EXPECT_TRUE(at::equal(y, x.clamp_min(0)));
  launch(gelu_backward, GeluBackwardArgs{element_type(x), dy.data_ptr(), 8, x.data_ptr(), 8, dx.data_ptr(), 8, 1, 7});
  EXPECT_TRUE(at::equal(dx.narrow(1, 4, 3), dy.narrow(1, 4, 3)));
  EXPECT_TRUE(at::equal(dx.narrow(1, 0, 3), at::zeros_like(dx.narrow(1, 0, 3))));
}

TEST_F(KernelModulation, ColumnSumsAddToWhatIsThereAndRepeatTheirBits) {
  for_all_cases({{1, 1, 8}, {1, 6144, 1024}, {1, 333, 520}, {1, 40, 77}}, [&](Dtype dtype, const Case& size) {
    const Tensor rows = random({size.rows, size.dim + 16}, dtype), x = rows.narrow(1, 16, size.dim);
    const Tensor sums = at::ones({size.dim}, at::TensorOptions(at::kFloat).device(gpu_));
    ColumnSumsArgs args{element_type(x),     ElementType::kFloat32,
                        x.data_ptr(),        x.stride(0),
                        sums.data_ptr(),
                        /*accumulate=*/true, nullptr,
                        size.rows,           size.dim};
    const Tensor room = empty({column_sums_scratch_bytes(args) / 4}, at::kFloat);
    args.scratch = room.data_ptr<float>();
    launch(column_sums, args);
    EXPECT_ROUNDED(sums, wide(x).sum(0) + 1, 4 * kLimit);
    const Tensor again = empty({size.dim}, at::kFloat), first = empty({size.dim}, at::kFloat);
    args.accumulate = false;
    for (const Tensor& into : {again, first}) {
      args.sums = into.data_ptr();
      launch(column_sums, args);
    }
    EXPECT_TRUE(at::equal(again, first));
  });
}

}  // namespace
}  // namespace titanium::kernels
