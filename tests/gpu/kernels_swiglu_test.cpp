#include <ATen/ops/sigmoid.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

const double kLimit = 2 * test::tolerance(at::kFloat);

struct Case {
  int64_t rows, dim;
  int64_t shift = 0;
};
const std::vector<Case> kCases = {{1, 1},    {3, 7},      {33, 768},  {400, 14336},
                                  {5, 4, 1}, {257, 1000}, {1000, 24}, {2, 100003}};

class KernelSwiglu : public test::KernelTest {
 protected:
  // Gate and up as the halves of one buffer. Wide enough that exp overflows both ways.
  struct Halves {
    Tensor fused, gate, up;
  };
  Halves halves(const Case& size, Dtype dtype) const {
    const Tensor fused = random({size.rows, 2 * size.dim}, dtype, size.shift).mul_(8);
    if (size.dim > 4) fused.narrow(1, 1, 1).fill_(-200), fused.narrow(1, 2, 1).fill_(200);
    return {fused, fused.narrow(1, 0, size.dim), fused.narrow(1, size.dim, size.dim)};
  }
  void forward(const Tensor& gate, const Tensor& up, const Tensor& product) const {
    launch(swiglu_forward,
           SwigluForwardArgs{element_type(gate), gate.data_ptr(), up.data_ptr(), product.data_ptr(), gate.stride(0),
                             up.stride(0), product.stride(0), gate.size(0), gate.size(1)});
  }
  void backward(const Tensor& dproduct, const Tensor& gate, const Tensor& up, const Tensor& dgate, const Tensor& dup,
                const Tensor& product) const {
    launch(swiglu_backward,
           SwigluBackwardArgs{element_type(gate), dproduct.data_ptr(), gate.data_ptr(), up.data_ptr(), dgate.data_ptr(),
                              dup.data_ptr(), product.defined() ? product.data_ptr() : nullptr, dproduct.stride(0),
                              gate.stride(0), up.stride(0), dgate.stride(0), dup.stride(0),
                              product.defined() ? product.stride(0) : 0, gate.size(0), gate.size(1)});
  }
};

TEST_F(KernelSwiglu, ForwardMatchesTheDefinitionOnHalvesOfAFusedBuffer) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.dim);
      const Halves in = halves(size, dtype);
      const Tensor product = empty({size.rows, size.dim}, dtype);
      forward(in.gate, in.up, product);
      EXPECT_ROUNDED(product, wide(in.gate) * at::sigmoid(wide(in.gate)) * wide(in.up), kLimit);
    }
  }
}

TEST_F(KernelSwiglu, BackwardOverItsInputsMatchesTheDefinition) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.dim);
      const Halves in = halves(size, dtype);
      const Tensor grad = random({size.rows, size.dim}, dtype), forwards = empty({size.rows, size.dim}, dtype);
      forward(in.gate, in.up, forwards);
      const Tensor gate = wide(in.gate), up = wide(in.up), dproduct = wide(grad), s = at::sigmoid(gate);
      backward(grad, in.gate, in.up, in.gate, in.up, grad);
      EXPECT_ROUNDED(in.gate, dproduct * up * s * (1 + gate * (1 - s)), kLimit);
      EXPECT_ROUNDED(in.up, dproduct * gate * s, kLimit);
      EXPECT_TRUE(at::equal(grad, forwards));
    }
  }
}

TEST_F(KernelSwiglu, BackwardWithoutTheProductLeavesItsInputs) {
  const Halves in = halves({37, 96}, at::kBFloat16);
  const Tensor grad = random({37, 96}, at::kBFloat16), before = in.fused.clone(), grad_before = grad.clone();
  const Tensor dgate = empty({37, 96}, at::kBFloat16), dup = empty({37, 96}, at::kBFloat16);
  backward(grad, in.gate, in.up, dgate, dup, {});
  EXPECT_TRUE(at::equal(in.fused, before));
  EXPECT_TRUE(at::equal(grad, grad_before));
  const Tensor s = at::sigmoid(wide(in.gate));
  EXPECT_ROUNDED(dup, wide(grad) * wide(in.gate) * s, kLimit);
  EXPECT_ROUNDED(dgate, wide(grad) * wide(in.up) * s * (1 + wide(in.gate) * (1 - s)), kLimit);
}

}  // namespace
}  // namespace titanium::kernels
