#include <ATen/ops/cat.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/rope.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

struct Case {
  int64_t tokens, seq_len, q_heads, k_heads, head_dim;
  int64_t shift = 0;
};
const std::vector<Case> kCases = {{1, 1, 1, 1, 2},         {10, 5, 3, 2, 6},        {2300, 1150, 32, 8, 128},
                                  {2200, 1100, 32, 8, 64}, {64, 32, 16, 16, 16},    {6, 3, 5, 0, 1040},
                                  {7, 7, 4, 1, 130},       {9, 3, 96, 8, 128},      {9, 3, 4, 4, 24},
                                  {8, 4, 4, 2, 128, 1},    {1300, 650, 0, 3, 36, 2}};

class KernelRope : public test::KernelTest {
 protected:
  Tensor table(const Case& size) const {
    const Tensor angles = test::random_tensor({size.seq_len, size.head_dim / 2}) * 3;
    return at::polar(at::full({size.seq_len, size.head_dim / 2}, 1.0), angles).to(gpu_);
  }
  void rotate(const Tensor& q, const Tensor& k, int64_t stride, const Tensor& table, const Case& size, bool inverse,
              bool halves = false) const {
    launch(rope, RopeArgs{element_type(q), q.data_ptr(), k.data_ptr(), stride, stride, size.q_heads, size.k_heads,
                          size.head_dim, static_cast<const float*>(table.data_ptr()), size.tokens, size.seq_len,
                          inverse, halves});
  }
};

// x [tokens, heads, head_dim]
Tensor reference(const Tensor& x, const Tensor& table, const Case& size) {
  const int64_t heads = x.size(1);
  const Tensor pairs = at::view_as_complex(
      wide(x).reshape({size.tokens / size.seq_len, size.seq_len, heads, size.head_dim / 2, 2}).contiguous());
  return at::view_as_real(pairs * table.cpu().to(at::kComplexDouble).unsqueeze(1))
      .reshape({size.tokens, heads, size.head_dim});
}

TEST_F(KernelRope, RotatesQueriesAndKeysOfAFusedBufferAndNothingElse) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.q_heads << "+" << size.k_heads << " x "
                                      << size.head_dim);
      const int64_t heads = size.q_heads + 2 * size.k_heads;
      const Tensor qkv = random({size.tokens, heads, size.head_dim}, dtype, size.shift), before = qkv.clone();
      const Tensor rotations = table(size);
      rotate(qkv, qkv.narrow(1, size.q_heads, size.k_heads), heads * size.head_dim, rotations, size, false);
      const int64_t rotated = size.q_heads + size.k_heads;
      EXPECT_ROUNDED(qkv.narrow(1, 0, rotated), reference(before.narrow(1, 0, rotated), rotations, size),
                     test::tolerance(at::kFloat));
      EXPECT_TRUE(at::equal(qkv.narrow(1, rotated, size.k_heads), before.narrow(1, rotated, size.k_heads)));
    }
  }
}

TEST_F(KernelRope, PairsMayBeTheHalvesOfAHead) {
  // Element i and element i + head_dim / 2 become neighbours, and back.
  const auto as_pairs = [](const Tensor& x) { return x.unflatten(2, {2, -1}).transpose(2, 3).flatten(2).contiguous(); };
  const auto as_halves = [](const Tensor& x) {
    return x.unflatten(2, {-1, 2}).transpose(2, 3).flatten(2).contiguous();
  };
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.q_heads << "+" << size.k_heads << " x "
                                      << size.head_dim);
      const int64_t heads = size.q_heads + size.k_heads;
      const Tensor qk = random({size.tokens, heads, size.head_dim}, dtype, size.shift), before = qk.clone();
      const Tensor rotations = table(size);
      rotate(qk, qk.narrow(1, size.q_heads, size.k_heads), heads * size.head_dim, rotations, size, false, true);
      EXPECT_ROUNDED(qk, as_halves(reference(as_pairs(before), rotations, size)), test::tolerance(at::kFloat));
    }
  }
}

TEST_F(KernelRope, TheInverseRotatesBack) {
  for (const Case& size : kCases) {
    const Tensor q = random({size.tokens, size.q_heads, size.head_dim}, at::kFloat),
                 k = random({size.tokens, size.k_heads, size.head_dim}, at::kFloat);
    const Tensor both = at::cat({q, k}, 1), rotations = table(size);
    for (const bool inverse : {false, true}) {
      launch(rope, RopeArgs{element_type(q), q.data_ptr(), k.data_ptr(), size.q_heads * size.head_dim,
                            size.k_heads * size.head_dim, size.q_heads, size.k_heads, size.head_dim,
                            static_cast<const float*>(rotations.data_ptr()), size.tokens, size.seq_len, inverse});
      const Tensor now = at::cat({q, k}, 1);
      if (!inverse) EXPECT_ROUNDED(now, reference(both, rotations, size), test::tolerance(at::kFloat));
    }
    EXPECT_CLOSE(at::cat({q, k}, 1), both, test::tolerance(at::kFloat));
  }
}

}  // namespace
}  // namespace titanium::kernels
