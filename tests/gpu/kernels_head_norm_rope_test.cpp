#include <ATen/ops/cat.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/head_norm_rope.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

constexpr float kEps = 1e-6F;
const double kLimit = test::tolerance(at::kFloat);

struct Case {
  int64_t tokens, seq_len, q_heads, k_heads, head_dim;
};
// Fewer rows than a block treats, more than the device holds at once, and numbers of heads that divide nothing.
const std::vector<Case> kCases = {{1, 1, 1, 1, 128},     {10, 5, 3, 2, 64},      {2300, 1150, 16, 8, 128},
                                  {7, 7, 5, 3, 128},     {4099, 4099, 7, 1, 64}, {33, 11, 1, 13, 64},
                                  {600, 200, 40, 8, 128}};
// The smallest and the largest heads depend on the dtype.
std::vector<Case> cases(Dtype dtype) {
  std::vector<Case> all = kCases;
  all.push_back({501, 167, 6, 3, dtype == at::kFloat ? 32 : 256});
  return all;
}

class KernelHeadNormRope : public test::KernelTest {
 protected:
  // The tensors of queries or of keys.
  struct Heads {
    Tensor x, weight, dy;
  };
  struct Inputs {
    Heads q, k;
    Tensor table;
    Case size;
  };
  Inputs inputs(const Case& size, Dtype dtype, Dtype weight_dtype) const {
    const auto heads = [&](int64_t count) -> Heads {
      const Shape shape = {size.tokens, count, size.head_dim};
      return {random(shape, dtype), random({size.head_dim}, weight_dtype, /*shift=*/1), random(shape, dtype)};
    };
    const Tensor angles = test::random_tensor({size.seq_len, size.head_dim / 2}) * 3;
    return {heads(size.q_heads), heads(size.k_heads), at::polar(at::full(angles.sizes(), 1.0), angles).to(gpu_), size};
  }

  // The tensors of queries or of keys.
  struct Result {
    Tensor y, rstd;
  };
  std::pair<Result, Result> forward(const Inputs& in) const {
    const auto result = [&](const Heads& heads) -> Result {
      return {empty(heads.x.sizes().vec(), heads.x.scalar_type()),
              empty({in.size.tokens, heads.x.size(1), 1}, at::kFloat)};
    };
    const Result q = result(in.q), k = result(in.k);
    forward(in, q, k);
    return {q, k};
  }
  void forward(const Inputs& in, const Result& q, const Result& k) const {
    const auto heads = [](const Heads& of, const Result& to) {
      return HeadNormRopeForwardArgs::Heads{of.x.data_ptr(), of.weight.data_ptr(), to.y.data_ptr(),
                                            to.rstd.data_ptr<float>(), of.x.size(1)};
    };
    launch(head_norm_rope_forward,
           HeadNormRopeForwardArgs{element_type(in.q.x), element_type(in.q.weight), heads(in.q, q), heads(in.k, k),
                                   in.size.head_dim, static_cast<const float*>(in.table.data_ptr()), in.size.tokens,
                                   in.size.seq_len, kEps});
  }

  // The tensors of queries or of keys.
  struct Grads {
    Tensor dx, dweight;
    bool accumulate = false;
    Tensor amax;
  };
  Grads empty_grads(const Heads& heads, Dtype dweight_dtype) const {
    return {empty(heads.x.sizes().vec(), heads.x.scalar_type()), empty({heads.x.size(2)}, dweight_dtype), false,
            at::zeros({}, at::TensorOptions(at::kFloat).device(gpu_))};
  }
  void backward(const Inputs& in, const std::pair<Result, Result>& saved, const Grads& q, const Grads& k) const {
    const auto heads = [](const Heads& of, const Result& result, const Grads& to) {
      return HeadNormRopeBackwardArgs::Heads{
          of.dy.data_ptr(),     of.x.data_ptr(),  result.rstd.data_ptr<float>(),
          of.weight.data_ptr(), to.dx.data_ptr(), to.dweight.data_ptr(),
          to.accumulate,        of.x.size(1),     to.amax.defined() ? to.amax.data_ptr<float>() : nullptr};
    };
    HeadNormRopeBackwardArgs args{element_type(in.q.x),
                                  element_type(in.q.weight),
                                  element_type(q.dweight),
                                  heads(in.q, saved.first, q),
                                  heads(in.k, saved.second, k),
                                  in.size.head_dim,
                                  static_cast<const float*>(in.table.data_ptr()),
                                  nullptr,
                                  in.size.tokens,
                                  in.size.seq_len};
    const Tensor room = empty({head_norm_rope_scratch_bytes(args) / 4}, at::kFloat);
    args.scratch = room.data_ptr<float>();
    launch(head_norm_rope_backward, args);
  }
};

Tensor reference_rstd(const Tensor& x) { return at::rsqrt(x.square().mean(2, true) + static_cast<double>(kEps)); }

// x [tokens, heads, head_dim], by the table or by its conjugate.
Tensor rotated(const Tensor& x, const Tensor& table, const Case& size, bool inverse) {
  const Tensor pairs = at::view_as_complex(
      x.reshape({size.tokens / size.seq_len, size.seq_len, x.size(1), 2, -1}).transpose(3, 4).contiguous());
  const Tensor entries = table.cpu().to(at::kComplexDouble).unsqueeze(1);
  return at::view_as_real(pairs * (inverse ? entries.conj() : entries)).transpose(3, 4).reshape(x.sizes());
}

template <typename Check>
void for_all_cases(const Check& check) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : cases(dtype)) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.tokens << " tokens of " << size.q_heads << "+"
                                      << size.k_heads << " x " << size.head_dim);
      check(dtype, size);
    }
  }
}

TEST_F(KernelHeadNormRope, ForwardNormalisesEachHeadAndRotatesIt) {
  for_all_cases([&](Dtype dtype, const Case& size) {
    for (const Dtype weight_dtype : {at::kFloat, at::kBFloat16}) {
      const Inputs in = inputs(size, dtype, weight_dtype);
      const auto [q, k] = forward(in);
      for (const auto& [heads, result] : {std::pair(in.q, q), std::pair(in.k, k)}) {
        const Tensor x = wide(heads.x), rstd = reference_rstd(x);
        EXPECT_ROUNDED(result.rstd, rstd, kLimit);
        EXPECT_ROUNDED(result.y, rotated(x * rstd * wide(heads.weight), in.table, size, false), 2 * kLimit);
      }
    }
  });
}

TEST_F(KernelHeadNormRope, BackwardMatchesTheDefinitionAndAddsToTheGradientsOfTheWeights) {
  for_all_cases([&](Dtype dtype, const Case& size) {
    const Inputs in = inputs(size, dtype, at::kFloat);
    const auto saved = forward(in);
    Grads q = empty_grads(in.q, at::kFloat), k = empty_grads(in.k, at::kFloat);
    for (const int pass : {1, 2}) {
      backward(in, saved, q, k);
      for (const auto& [heads, grads] : {std::pair(in.q, q), std::pair(in.k, k)}) {
        const Tensor x = wide(heads.x), rstd = reference_rstd(x), normalised = x * rstd;
        const Tensor dy = rotated(wide(heads.dy), in.table, size, true), grad = dy * wide(heads.weight);
        EXPECT_ROUNDED(grads.dx, (grad - normalised * (grad * normalised).mean(2, true)) * rstd, 4 * kLimit);
        EXPECT_ROUNDED(grads.dweight, pass * (dy * normalised).flatten(0, 1).sum(0), 4 * kLimit);
        EXPECT_EQ(grads.amax.item<float>(), grads.dx.abs().amax().to(at::kFloat).item<float>());
      }
      q.accumulate = k.accumulate = true;
    }
  });
}

TEST_F(KernelHeadNormRope, MayOverwriteItsInputsAndRepeatsItsBits) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    const Inputs in = inputs({2300, 1150, 16, 8, 128}, dtype, dtype);
    const auto saved = forward(in);
    const Grads q = empty_grads(in.q, dtype), k = empty_grads(in.k, dtype);
    backward(in, saved, q, k);
    Inputs copy = in;
    for (Heads* heads : {&copy.q, &copy.k}) *heads = {heads->x.clone(), heads->weight, heads->dy.clone()};
    Grads over_q = empty_grads(in.q, dtype), over_k = empty_grads(in.k, dtype);
    over_q.dx = copy.q.dy;
    over_k.dx = copy.k.dy;
    over_q.amax = over_k.amax = Tensor();
    backward(copy, saved, over_q, over_k);
    for (const auto& [first, second] : {std::pair(q, over_q), std::pair(k, over_k)}) {
      EXPECT_TRUE(at::equal(first.dx, second.dx));
      EXPECT_TRUE(at::equal(first.dweight, second.dweight));
    }
    forward(copy, {copy.q.x, saved.first.rstd.clone()}, {copy.k.x, saved.second.rstd.clone()});
    EXPECT_TRUE(at::equal(copy.q.x, saved.first.y));
    EXPECT_TRUE(at::equal(copy.k.x, saved.second.y));
  }
}

// Neighbours are pairs, queries and keys are columns of one product, and rotated queries are tokens of longer
// sequences.
class KernelHeadNormRopeOfColumns : public test::KernelTest {
 protected:
  static constexpr int64_t kSequences = 3, kTokens = 37, kHeads = 5, kBefore = 11, kAll = 60;

  struct Arrays {
    int64_t dim;
    Tensor product, weight, table, rotated_of_all, rotated_k, rstd, rstd_of_k;
    Tensor columns(const Tensor& rows, int64_t i) const {
      return rows.narrow(2, i * kHeads * dim, kHeads * dim).unflatten(2, {kHeads, dim});
    }
    Tensor rotated_q() const { return of_all(rotated_of_all); }
    Tensor of_all(const Tensor& all) const { return all.narrow(1, kBefore, kTokens); }
    // Those of queries (0) or keys (1) in fp64 on the CPU.
    Tensor x(int64_t i) const { return wide(columns(product, i).contiguous()); }
    Tensor rotate(const Tensor& values, bool inverse) const {
      const Tensor pairs = at::view_as_complex(values.unflatten(3, {dim / 2, 2}).contiguous());
      const Tensor entries = table.cpu().to(at::kComplexDouble).unsqueeze(1);
      return at::view_as_real(pairs * (inverse ? entries.conj() : entries)).flatten(3);
    }
  };
  Arrays forward(Dtype dtype, int64_t dim) const {
    const Tensor angles = test::random_tensor({kTokens, dim / 2}) * 3;
    const Arrays in{.dim = dim,
                    .product = random({kSequences, kTokens, 3 * kHeads * dim}, dtype),
                    .weight = random({dim}, dtype, /*shift=*/1),
                    .table = at::polar(at::full(angles.sizes(), 1.0), angles).to(gpu_, at::kComplexFloat),
                    .rotated_of_all = empty({kSequences, kAll, kHeads, dim}, dtype),
                    .rotated_k = empty({kSequences, kTokens, kHeads, dim}, dtype),
                    .rstd = empty({kSequences * kTokens * kHeads}, at::kFloat),
                    .rstd_of_k = empty({kSequences * kTokens * kHeads}, at::kFloat)};
    const auto heads = [&](int64_t i, const Tensor& y, const Tensor& rstd) {
      const Tensor x = in.columns(in.product, i);
      return HeadNormRopeForwardArgs::Heads{x.data_ptr(), in.weight.data_ptr(), y.data_ptr(), rstd.data_ptr<float>(),
                                            kHeads,       strides(x),           strides(y)};
    };
    launch(head_norm_rope_forward,
           HeadNormRopeForwardArgs{element_type(in.product), element_type(in.weight), heads(0, in.rotated_q(), in.rstd),
                                   heads(1, in.rotated_k, in.rstd_of_k), dim,
                                   static_cast<const float*>(in.table.data_ptr()), kSequences * kTokens, kTokens, kEps,
                                   /*neighbours=*/true});
    return in;
  }
  static HeadStrides strides(const Tensor& x) { return {x.stride(1), x.stride(0)}; }
};

Tensor rstd_of(const Tensor& x) { return at::rsqrt(x.square().mean(3, true) + static_cast<double>(kEps)); }

TEST_F(KernelHeadNormRopeOfColumns, ForwardRotatesNeighboursAndWritesNothingElse) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t dim : {64, 128}) {
      const Arrays in = forward(dtype, dim);
      for (const auto& [i, found] : {std::pair(int64_t{0}, in.rotated_q()), std::pair(int64_t{1}, in.rotated_k)}) {
        const Tensor x = in.x(i);
        EXPECT_ROUNDED(found.contiguous(), in.rotate(x * rstd_of(x) * wide(in.weight), false), 2 * kLimit);
      }
      EXPECT_TRUE(in.rotated_of_all.narrow(1, 0, kBefore).isnan().all().item<bool>());
    }
  }
}

TEST_F(KernelHeadNormRopeOfColumns, BackwardWritesTheColumnsOfQueriesAndKeys) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    const Arrays in = forward(dtype, 128);
    const Tensor dy = in.of_all(random({kSequences, kAll, kHeads, in.dim}, dtype));
    const Tensor dproduct = empty(in.product.sizes().vec(), dtype), dweight = empty({2, in.dim}, at::kFloat);
    const auto heads = [&](int64_t i, const Tensor& rstd) {
      const Tensor x = in.columns(in.product, i), dx = in.columns(dproduct, i);
      return HeadNormRopeBackwardArgs::Heads{dy.data_ptr(),
                                             x.data_ptr(),
                                             rstd.data_ptr<float>(),
                                             in.weight.data_ptr(),
                                             dx.data_ptr(),
                                             dweight[i].data_ptr(),
                                             false,
                                             kHeads,
                                             nullptr,
                                             strides(dy),
                                             strides(x),
                                             strides(dx)};
    };
    HeadNormRopeBackwardArgs args{element_type(in.product),
                                  element_type(in.weight),
                                  ElementType::kFloat32,
                                  heads(0, in.rstd),
                                  heads(1, in.rstd_of_k),
                                  in.dim,
                                  static_cast<const float*>(in.table.data_ptr()),
                                  nullptr,
                                  kSequences * kTokens,
                                  kTokens,
                                  /*neighbours=*/true};
    const Tensor room = empty({head_norm_rope_scratch_bytes(args) / 4}, at::kFloat);
    args.scratch = room.data_ptr<float>();
    launch(head_norm_rope_backward, args);
    const Tensor grad = in.rotate(wide(dy.contiguous()), true), scaled = grad * wide(in.weight);
    for (const int64_t i : {0, 1}) {
      const Tensor x = in.x(i), rstd = rstd_of(x), normalised = x * rstd;
      const Tensor dx = (scaled - normalised * (scaled * normalised).mean(3, true)) * rstd;
      EXPECT_ROUNDED(in.columns(dproduct, i).contiguous(), dx, 4 * kLimit);
      EXPECT_ROUNDED(dweight[i], (grad * normalised).flatten(0, 2).sum(0), 4 * kLimit);
    }
    EXPECT_TRUE(dproduct.narrow(2, 2 * kHeads * in.dim, kHeads * in.dim).isnan().all().item<bool>());
  }
}

TEST_F(KernelHeadNormRope, HasTheSizesOfHeadsThatItSays) {
  for (const int64_t head_dim : {64, 128}) {
    EXPECT_TRUE(has_head_norm_rope(ElementType::kBFloat16, head_dim));
    EXPECT_TRUE(has_head_norm_rope(ElementType::kFloat32, head_dim));
  }
  EXPECT_TRUE(has_head_norm_rope(ElementType::kBFloat16, 256));
  EXPECT_TRUE(has_head_norm_rope(ElementType::kFloat32, 32));
  for (const int64_t head_dim : {2, 16, 96, 100, 192, 512})
    EXPECT_FALSE(has_head_norm_rope(ElementType::kBFloat16, head_dim));
}

}  // namespace
}  // namespace titanium::kernels
