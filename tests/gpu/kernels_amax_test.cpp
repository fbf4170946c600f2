// The largest magnitudes that kernels find in what they produce.
#include <ATen/ops/polar.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/rms_norm.h"
#include "titanium/kernels/rope.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

using test::element_type;

struct Case {
  int64_t rows, dim;
  int64_t shift = 0;
};
const std::vector<Case> kCases = {{1, 1},    {3, 130},   {900, 128},  {400, 4096}, {5, 16384},
                                  {3, 7, 1}, {300, 768}, {70, 40000}, {2, 32768}};

class KernelAmax : public test::KernelTest {
 protected:
  Tensor zero() const { return at::zeros({}, at::TensorOptions(at::kFloat).device(gpu_)); }
  Tensor matrix(const Case& size, Dtype dtype) const { return random({size.rows, size.dim}, dtype, size.shift); }
};

float largest(const Tensor& x) { return x.abs().amax().to(at::kFloat).item<float>(); }

TEST_F(KernelAmax, OfANormIsThatOfYWhetherOrNotItIsWritten) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.dim);
      const Tensor x = matrix(size, dtype), weight = random({size.dim}, at::kFloat);
      const Tensor y = empty({size.rows, size.dim}, dtype), rstd = empty({size.rows}, at::kFloat), with_y = zero();
      RmsNormForwardArgs args{element_type(x), element_type(weight),    x.data_ptr(), weight.data_ptr(),
                              y.data_ptr(),    rstd.data_ptr<float>(),  size.rows,    size.dim,
                              1e-5F,           with_y.data_ptr<float>()};
      launch(rms_norm_forward, args);
      EXPECT_EQ(with_y.item<float>(), largest(y));

      const Tensor without_y = zero(), other_rstd = empty({size.rows}, at::kFloat);
      args.y = nullptr;
      args.rstd = other_rstd.data_ptr<float>();
      args.amax = without_y.data_ptr<float>();
      launch(rms_norm_forward, args);
      EXPECT_EQ(without_y.item<float>(), with_y.item<float>());
      EXPECT_TRUE(at::equal(other_rstd, rstd));
    }
  }
}

TEST_F(KernelAmax, OfTheNormsBackwardIsThatOfDx) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.dim);
      const Tensor dy = matrix(size, dtype), x = matrix(size, dtype), weight = random({size.dim}, at::kFloat);
      const Tensor rstd = random({size.rows}, at::kFloat).abs(), around = matrix(size, dtype);
      const Tensor dx = empty({size.rows, size.dim}, dtype), dweight = empty({size.dim}, at::kFloat), amax = zero();
      const Tensor room = scratch(rms_norm_backward_scratch_bytes(size.rows, size.dim));
      launch(rms_norm_backward,
             RmsNormBackwardArgs{element_type(x), element_type(weight), element_type(dweight), dy.data_ptr(),
                                 x.data_ptr(), rstd.data_ptr<float>(), weight.data_ptr(), around.data_ptr(),
                                 dx.data_ptr(), dweight.data_ptr(), false, static_cast<float*>(room.data_ptr()),
                                 size.rows, size.dim, amax.data_ptr<float>()});
      EXPECT_EQ(amax.item<float>(), largest(dx));
    }
  }
}

TEST_F(KernelAmax, OfSwigluAreThoseOfTheProductAndOfTheGradients) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.dim);
      const Tensor gate = matrix(size, dtype), up = matrix(size, dtype), grad = matrix(size, dtype);
      const Tensor product = empty({size.rows, size.dim}, dtype), written = zero(), not_written = zero();
      SwigluForwardArgs args{
          element_type(gate), gate.data_ptr(), up.data_ptr(), product.data_ptr(), size.dim,
          size.dim,           size.dim,        size.rows,     size.dim,           written.data_ptr<float>()};
      launch(swiglu_forward, args);
      args.product = nullptr;
      args.amax = not_written.data_ptr<float>();
      launch(swiglu_forward, args);
      EXPECT_EQ(written.item<float>(), largest(product));
      EXPECT_EQ(not_written.item<float>(), largest(product));

      const Tensor dgate_amax = zero(), dup_amax = zero();
      launch(swiglu_backward,
             SwigluBackwardArgs{element_type(gate), grad.data_ptr(), gate.data_ptr(), up.data_ptr(), gate.data_ptr(),
                                up.data_ptr(), nullptr, size.dim, size.dim, size.dim, size.dim, size.dim, size.dim,
                                size.rows, size.dim, dgate_amax.data_ptr<float>(), dup_amax.data_ptr<float>()});
      EXPECT_EQ(dgate_amax.item<float>(), largest(gate));
      EXPECT_EQ(dup_amax.item<float>(), largest(up));
    }
  }
}

TEST_F(KernelAmax, OfRopeAreThoseOfQueriesAndOfKeys) {
  struct Heads {
    int64_t tokens, q_heads, k_heads, head_dim;
  };
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Heads& size : {Heads{1300, 32, 8, 128}, Heads{7, 4, 1, 130}, Heads{9, 3, 2, 24}, Heads{1, 1, 1, 2}}) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.q_heads << "+" << size.k_heads << " x "
                                      << size.head_dim);
      const Tensor q = random({size.tokens, size.q_heads, size.head_dim}, dtype),
                   k = random({size.tokens, size.k_heads, size.head_dim}, dtype).mul_(3);
      const Tensor angles = test::random_tensor({size.tokens, size.head_dim / 2});
      const Tensor table = at::polar(at::full({size.tokens, size.head_dim / 2}, 1.0), angles).to(gpu_);
      const Tensor q_amax = zero(), k_amax = zero();
      launch(rope, RopeArgs{element_type(q), q.data_ptr(), k.data_ptr(), size.q_heads * size.head_dim,
                            size.k_heads * size.head_dim, size.q_heads, size.k_heads, size.head_dim,
                            static_cast<const float*>(table.data_ptr()), size.tokens, size.tokens, /*inverse=*/true,
                            /*halves=*/false, q_amax.data_ptr<float>(), k_amax.data_ptr<float>()});
      EXPECT_EQ(q_amax.item<float>(), largest(q));
      EXPECT_EQ(k_amax.item<float>(), largest(k));
    }
  }
}

TEST_F(KernelAmax, IsNaNIfThereIsOne) {
  const Tensor gate = matrix({300, 768}, at::kBFloat16), up = matrix({300, 768}, at::kBFloat16), amax = zero();
  gate[123][456] = std::nan("");
  launch(swiglu_forward, SwigluForwardArgs{element_type(gate), gate.data_ptr(), up.data_ptr(), nullptr, 768, 768, 768,
                                           300, 768, amax.data_ptr<float>()});
  EXPECT_TRUE(std::isnan(amax.item<float>()));
}

}  // namespace
}  // namespace titanium::kernels
