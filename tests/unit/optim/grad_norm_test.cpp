#include "titanium/optim/grad_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/tensor.h>

#include <random>

#include "titanium/tensor/gpu_backend.h"

namespace titanium::optim {
namespace {

// Parameters that exist for their gradients only.
struct Gradients {
  explicit Gradients(const std::vector<Tensor>& grads) {
    for (const Tensor& grad : grads) {
      owned.push_back(std::make_unique<Parameter>("p" + std::to_string(owned.size()), grad.sizes().vec()));
      owned.back()->grad = grad;
      pointers.push_back(owned.back().get());
    }
  }
  std::vector<std::unique_ptr<Parameter>> owned;
  std::vector<Parameter*> pointers;
};

// Values of very different sizes, as gradients have: a plain float32 sum loses the small ones.
Tensor heavy_tailed(int64_t size, Dtype dtype) {
  Tensor result = at::empty({size}, at::kFloat);
  std::mt19937 bits(7);
  float* data = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < size; ++i) {
    const float unit = static_cast<float>(bits() >> 8U) * 0x1p-24F - 0.5F;
    data[i] = unit * std::ldexp(1.0F, -static_cast<int>(bits() % 16));
  }
  return result.to(dtype);
}

double norm_in_float64(const Tensor& grad) { return at::linalg_vector_norm(grad.to(at::kDouble)).item<double>(); }

TEST(GradNorm, OfThreeAndFourIsFive) {
  const Gradients grads({at::tensor({3.0F}), at::tensor({0.0F, 4.0F})});
  EXPECT_EQ(total_norm(grads.pointers).item<double>(), 5.0);
  EXPECT_EQ(sum_of_squares(grads.pointers).item<double>(), 25.0);
}

TEST(GradNorm, AgreesWithFloat64OnTenMillionElements) {
  const Tensor values = heavy_tailed(10'000'019, at::kFloat);
  for (const Dtype dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Gradients grads({values.to(dtype)});
    const double expected = norm_in_float64(grads.owned[0]->grad);
    EXPECT_NEAR(total_norm(grads.pointers).item<double>(), expected, 1e-12 * expected) << dtype;
  }
}

TEST(GradNorm, DoesNotDependOnHowTensorsAreCut) {
  const Tensor values = heavy_tailed(1'000'003, at::kFloat);
  const double whole = total_norm(Gradients({values}).pointers).item<double>();
  std::mt19937 bits(3);
  for (int round = 0; round < 5; ++round) {
    std::vector<Tensor> pieces;
    for (int64_t first = 0; first < values.numel();) {
      const int64_t size = std::min<int64_t>(1 + bits() % 200'000, values.numel() - first);
      pieces.push_back(values.narrow(0, first, size));
      first += size;
    }
    EXPECT_NEAR(total_norm(Gradients(pieces).pointers).item<double>(), whole, 1e-14 * whole);
  }
}

TEST(GradNorm, IsBitEqualForAnyNumberOfThreads) {
  const Gradients grads({heavy_tailed(3'000'001, at::kFloat)});
  const int threads = at::get_num_threads();
  std::set<double> norms;
  for (const int count : {1, 2, 3, 8}) {
    at::set_num_threads(count);
    norms.insert(total_norm(grads.pointers).item<double>());
  }
  at::set_num_threads(threads);
  EXPECT_EQ(norms.size(), 1U);
}

TEST(GradNorm, ReadsStridedGradientsAndSkipsMissingOnes) {
  Gradients grads({at::tensor({1.0F, 2.0F, 2.0F, 0.0F}).reshape({2, 2}).t(), at::tensor({9.0F})});
  grads.owned[1]->grad = Tensor();
  EXPECT_EQ(total_norm(grads.pointers).item<double>(), 3.0);
  EXPECT_EQ(total_norm({}).item<double>(), 0.0);
}

TEST(ClipGrads, ScalesAllGradientsToTheLargestNormAllowed) {
  const Gradients grads({at::tensor({30.0F}), at::tensor({0.0F, 40.0F}).to(at::kBFloat16)});
  clip_grads(grads.pointers, 1.0, total_norm(grads.pointers));
  EXPECT_NEAR(grads.owned[0]->grad.item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(grads.owned[1]->grad[1].item<double>(), 0.8, 0.004);
}

TEST(ClipGrads, LeavesSmallerGradientsBitEqual) {
  const Tensor values = heavy_tailed(1000, at::kFloat);
  const Gradients grads({values.clone()});
  const Tensor norm = total_norm(grads.pointers);
  clip_grads(grads.pointers, norm.item<double>() * 1.01, norm);
  EXPECT_TRUE(grads.owned[0]->grad.equal(values));
}

TEST(GradNorm, OnCudaEqualsTheCpu) {
  if (gpu_device_count() == 0) GTEST_SKIP() << "no GPU";
  const Tensor values = heavy_tailed(20'000'003, at::kBFloat16);
  const Gradients on_cpu({values});
  const Gradients on_gpu({values.cuda()});
  const Tensor norm = total_norm(on_gpu.pointers);
  EXPECT_TRUE(norm.is_cuda());
  const double expected = total_norm(on_cpu.pointers).item<double>();
  EXPECT_NEAR(norm.item<double>(), expected, 1e-12 * expected);
  clip_grads(on_gpu.pointers, 0.5 * expected, norm);
  EXPECT_NEAR(total_norm(on_gpu.pointers).item<double>(), 0.5 * expected, 0.004 * expected);
}

}  // namespace
}  // namespace titanium::optim
