// Every operator on the GPU against the same operator on the CPU in fp32, from the same inputs, which bf16 holds
// exactly.
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <c10/core/GradMode.h>

#include "tests/gpu/gpu_test.h"
#include "tests/support/documents.h"
#include "titanium/ops/attention/attention.h"
#include "titanium/ops/embedding.h"
#include "titanium/ops/feed_forward.h"
#include "titanium/ops/head_loss.h"
#include "titanium/ops/init.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/norm_qkv_rope.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/ops/rope.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using test::tolerance;
using GpuOperators = test::GpuTest;

constexpr double kEps = 1e-5;

// How the GPU computes.
struct Kind {
  Dtype activations = at::kBFloat16;
  Dtype parameters = at::kFloat;
  bool reference = false;  // ATen's operators instead of our kernels
  // ATen's operators round between the steps that our kernels do in one.
  double limit() const {
    if (activations == at::kFloat) return 20 * tolerance(at::kFloat);
    return (reference ? 2 : 1.5) * tolerance(at::kBFloat16);
  }
};

template <typename Check>
void for_all_kinds(const Check& check) {
  for (const bool reference : {false, true}) {
    set_reference_ops(reference);
    for (const Kind& kind : {Kind{at::kBFloat16, at::kFloat, reference}, Kind{at::kBFloat16, at::kBFloat16, reference},
                             Kind{at::kFloat, at::kFloat, reference}}) {
      SCOPED_TRACE(testing::Message() << kind.activations << " with parameters in " << kind.parameters
                                      << (reference ? ", ATen" : ", kernels"));
      check(kind);
    }
  }
  set_reference_ops(false);
}

// The same values, exact in bf16, as a parameter on each device.
struct Pair {
  Pair(const Shape& shape, Device gpu, double scale, const Kind& kind = {})
      : limit(kind.limit()), cpu("weight", shape), gpu("weight", shape) {
    const c10::AutoGradMode no_grad(false);
    const Tensor values = (random_tensor(shape) * scale).to(at::kBFloat16).to(at::kFloat);
    cpu.materialize(at::kFloat, at::kCPU);
    this->gpu.materialize(kind.parameters, gpu);
    cpu.value.copy_(values);
    this->gpu.value.copy_(values);
  }
  void expect_close_grads() const {
    EXPECT_EQ(gpu.grad.scalar_type(), gpu.value.scalar_type());
    EXPECT_CLOSE(gpu.grad, cpu.grad, limit);
  }
  double limit;
  Parameter cpu, gpu;
};

struct Leaves {
  Leaves(const Shape& shape, Device gpu_device, const Kind& kind = {}) : limit(kind.limit()) {
    const Tensor values = random_tensor(shape).to(at::kBFloat16);
    cpu = values.to(at::kFloat).requires_grad_(true);
    gpu = values.to(gpu_device, kind.activations).requires_grad_(true);
  }
  void expect_close_grads() const { EXPECT_CLOSE(gpu.grad(), cpu.grad(), limit); }
  double limit;
  Tensor cpu, gpu;
};

void backward_both(const Tensor& cpu, const Tensor& gpu, const Kind& kind = {}) {
  EXPECT_CLOSE(gpu, cpu, kind.limit());
  const Tensor grad = random_tensor(cpu.sizes().vec()).to(at::kBFloat16);
  cpu.backward(grad.to(at::kFloat));
  gpu.backward(grad.to(gpu.device(), gpu.scalar_type()));
}

TEST_F(GpuOperators, InitialWeightsHaveTheSameBitsAsOnTheCpu) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    Parameter cpu("layers.0.w", {513, 1027}), gpu("layers.0.w", {513, 1027});
    cpu.materialize(dtype, at::kCPU);
    gpu.materialize(dtype, gpu_);
    init_normal(cpu, 7, 0.02);
    init_normal(gpu, 7, 0.02);
    EXPECT_TRUE(at::equal(cpu.value, gpu.value.cpu()));
  }
}

TEST_F(GpuOperators, InitialWeightsOfExpertsHaveTheSameBitsForEveryCut) {
  Parameter whole("experts.w", {6, 40, 24});
  whole.materialize(at::kFloat, at::kCPU);
  init_normal(whole, 7, 0.02);
  for (const Box& shard : {Box{{2, 0, 0}, {3, 40, 24}}, Box{{2, 10, 0}, {3, 20, 24}}, Box{{2, 10, 3}, {3, 20, 7}}}) {
    Parameter gpu("experts.w", {6, 40, 24});
    gpu.part = gpu.shard = shard;
    gpu.materialize(at::kFloat, gpu_);
    init_normal(gpu, 7, 0.02);
    EXPECT_TRUE(at::equal(gpu.value.cpu(), box_of(whole.value, shard)));
  }
}

void check_attention(Device gpu, int64_t seq_len, int64_t heads, int64_t kv_heads, int64_t head_dim,
                     bool with_documents) {
  const int64_t batch = 2;
  const Leaves q({batch, seq_len, heads, head_dim}, gpu), k({batch, seq_len, kv_heads, head_dim}, gpu),
      v({batch, seq_len, kv_heads, head_dim}, gpu);
  DocumentsPtr on_cpu, on_gpu;
  if (with_documents) {
    std::vector<int64_t> tokens(batch * seq_len, 1);
    for (size_t i = 0; i < tokens.size(); i += 37) tokens[i] = 0;
    on_cpu = test::find_documents(tokens, seq_len, 0, at::kCPU);
    on_gpu = test::find_documents(tokens, seq_len, 0, gpu);
  }
  backward_both(attention_by_definition(q.cpu, k.cpu, v.cpu, {.documents = on_cpu}),
                attention(q.gpu, k.gpu, v.gpu, {.documents = on_gpu}));
  for (const Leaves* leaves : {&q, &k, &v}) leaves->expect_close_grads();
}

TEST_F(GpuOperators, CausalAttentionMatchesTheDefinition) {
  check_attention(gpu_, 256, 4, 4, 64, false);
  check_attention(gpu_, 256, 16, 16, 16, false);
}
TEST_F(GpuOperators, GroupedAttentionMatchesTheDefinition) { check_attention(gpu_, 256, 8, 2, 128, false); }
TEST_F(GpuOperators, AttentionInsideDocumentsMatchesTheDefinition) { check_attention(gpu_, 256, 8, 2, 64, true); }

// Flash takes those above 128, and what is no multiple of 8 goes by definition.
TEST_F(GpuOperators, AttentionWithUnusualHeadDimsMatchesTheDefinition) {
  for (const int64_t head_dim : {192, 256, 100}) {
    for (const bool with_documents : {false, true}) check_attention(gpu_, 256, 4, 2, head_dim, with_documents);
  }
}

TEST_F(GpuOperators, AttentionInFloatMatchesTheCpu) {
  const Tensor q = random_tensor({2, 40, 8, 32}), k = random_tensor({2, 40, 2, 32}), v = random_tensor({2, 40, 2, 32});
  const Tensor on_gpu = attention(q.to(gpu_), k.to(gpu_), v.to(gpu_));
  EXPECT_TRUE(on_gpu.is_contiguous());
  EXPECT_CLOSE(on_gpu, attention(q, k, v), 10 * tolerance(at::kFloat));
}

void check_rms_norm(Device gpu, int64_t rows, int64_t dim, const Kind& kind) {
  Pair weight({dim}, gpu, 1, kind);
  const Leaves x({rows, dim}, gpu, kind);
  for (int pass = 0; pass < 2; ++pass)  // the second adds to the gradients
    backward_both(rms_norm(x.cpu, weight.cpu, kEps), rms_norm(x.gpu, weight.gpu, kEps), kind);
  x.expect_close_grads();
  weight.expect_close_grads();
}

TEST_F(GpuOperators, RmsNormMatchesTheCpu) {
  for_all_kinds([&](const Kind& kind) {
    check_rms_norm(gpu_, 300, 256, kind);
    check_rms_norm(gpu_, 37, 4096, kind);
    check_rms_norm(gpu_, 19, 131, kind);
  });
}

TEST_F(GpuOperators, RmsNormTakesStridedRowsAndGivesTheSameBitsFromRstd) {
  for_all_kinds([&](const Kind& kind) {
    Pair weight({256}, gpu_, 1, kind);
    const Tensor x = random_tensor({50, 3, 256}).to(gpu_, kind.activations).select(1, 1);
    const RmsNormOutput out = rms_norm_forward(x, weight.gpu, kEps);
    EXPECT_TRUE(at::equal(out.y_TD, rms_norm_forward(x.contiguous(), weight.gpu, kEps).y_TD));
    EXPECT_TRUE(at::equal(out.y_TD, rms_norm_apply(x, out.rstd_T1, weight.gpu)));
  });
}

TEST_F(GpuOperators, RmsNormBackwardGivesTheOutputWithTheBitsOfSeparatePasses) {
  for_all_kinds([&](const Kind& kind) {
    Pair weight({256}, gpu_, 1, kind), other({256}, gpu_, 1, kind);
    const c10::AutoGradMode no_grad(false);
    other.gpu.value.copy_(weight.gpu.value);
    const auto random = [&] { return random_tensor({50, 3, 256}).to(gpu_, kind.activations).select(1, 1); };
    const Tensor x = random(), grad = random(), around = random();
    const Tensor rstd = rms_norm_forward(x, weight.gpu, kEps).rstd_T1;
    const Tensor grad_x = rms_norm_backward(grad, x, rstd, weight.gpu, around);
    const RmsNormGradAndOutput out = rms_norm_backward_with_output(grad.contiguous(), x, rstd, other.gpu, around);
    EXPECT_TRUE(at::equal(out.grad_x_TD, grad_x));
    EXPECT_TRUE(at::equal(out.y_TD, rms_norm_apply(x, rstd, weight.gpu)));
    EXPECT_TRUE(at::equal(other.gpu.grad, weight.gpu.grad));
  });
}

void check_norm_qkv_rope(Device gpu, int64_t dim, int64_t head_dim, const Kind& kind, bool with_head_norms = false,
                         bool rows_for_each_token = false) {
  const int64_t seq_len = 32, heads = 4, kv_heads = 2;
  Pair norm({dim}, gpu, 1, kind), wq({heads * head_dim, dim}, gpu, 0.1, kind),
      wk({kv_heads * head_dim, dim}, gpu, 0.1, kind), wv({kv_heads * head_dim, dim}, gpu, 0.1, kind),
      q_norm({head_dim}, gpu, 1, kind), k_norm({head_dim}, gpu, 1, kind);
  const Leaves x({2 * seq_len, dim}, gpu, kind);
  Tensor table = rope_table(head_dim, seq_len, 500000, RopeScaling{}, at::kCPU);
  if (rows_for_each_token) {
    std::vector<int64_t> positions;
    for (int64_t token = 0; token < 2 * seq_len; ++token) positions.push_back(token % seq_len % (token < 32 ? 13 : 20));
    table = test::rows_at(table, positions, seq_len);
  }
  NormQkvRopeArgs cpu_args{norm.cpu, kEps, wq.cpu, wk.cpu, wv.cpu, head_dim, table};
  NormQkvRopeArgs gpu_args{norm.gpu, kEps, wq.gpu, wk.gpu, wv.gpu, head_dim, table.to(gpu)};
  if (with_head_norms) {
    cpu_args.pairs = gpu_args.pairs = RopePairs::kHalves;
    cpu_args.head_norms.emplace(HeadNorms{q_norm.cpu, k_norm.cpu, kEps});
    gpu_args.head_norms.emplace(HeadNorms{q_norm.gpu, k_norm.gpu, kEps});
  }
  const Qkv on_cpu = norm_qkv_rope(x.cpu, cpu_args), on_gpu = norm_qkv_rope(x.gpu, gpu_args);
  EXPECT_CLOSE(on_gpu.q_BSHE, on_cpu.q_BSHE, kind.limit());
  EXPECT_CLOSE(on_gpu.k_BSKE, on_cpu.k_BSKE, kind.limit());
  const auto joined = [&](const Qkv& qkv) {
    const Tensor sum = qkv.q_BSHE.flatten(2).narrow(2, 0, kv_heads * head_dim) + qkv.k_BSKE.flatten(2);
    return at::cat({(sum + qkv.v_BSKE.flatten(2)).flatten(0, 1), qkv.residual_tD}, 1);
  };
  backward_both(joined(on_cpu), joined(on_gpu), kind);
  x.expect_close_grads();
  for (const Pair* pair : {&norm, &wq, &wk, &wv}) pair->expect_close_grads();
  if (!with_head_norms) return;
  for (const Pair* pair : {&q_norm, &k_norm}) pair->expect_close_grads();
}

TEST_F(GpuOperators, NormQkvRopeWithNormsOfHeadsMatchesTheCpu) {
  for_all_kinds([&](const Kind& kind) {
    for (const int64_t head_dim : {128, 64, 96}) {  // there is no kernel for 96, nor for 30
      check_norm_qkv_rope(gpu_, 256, head_dim, kind, /*with_head_norms=*/true);
    }
    check_norm_qkv_rope(gpu_, 130, 30, kind, /*with_head_norms=*/true);
  });
}

TEST_F(GpuOperators, NormQkvRopeMatchesTheCpu) {
  for_all_kinds([&](const Kind& kind) {
    check_norm_qkv_rope(gpu_, 256, 64, kind);
    check_norm_qkv_rope(gpu_, 130, 30, kind);
  });
}

TEST_F(GpuOperators, RopeOfRowsForEachTokenMatchesTheCpu) {
  for_all_kinds([&](const Kind& kind) {
    for (const bool with_head_norms : {false, true}) {
      check_norm_qkv_rope(gpu_, 256, 64, kind, with_head_norms, /*rows_for_each_token=*/true);
      check_norm_qkv_rope(gpu_, 130, 30, kind, with_head_norms, /*rows_for_each_token=*/true);
    }
  });
}

TEST_F(GpuOperators, RotatingBackGivesTheInput) {
  const Tensor table = rope_table(64, 32, 500000, std::nullopt, gpu_);
  const Tensor q = random_tensor({2, 32, 4, 64}).to(gpu_), k = random_tensor({2, 32, 2, 64}).to(gpu_);
  const Rotated there = rotate(q.clone(), k.clone(), table);
  EXPECT_CLOSE(there.k_BSKE, apply_rope(k, table), tolerance(at::kFloat));
  const Rotated back = rotate(there.q_BSHE, there.k_BSKE, table, /*inverse=*/true);
  EXPECT_CLOSE(back.q_BSHE, q, tolerance(at::kFloat));
  EXPECT_CLOSE(back.k_BSKE, k, tolerance(at::kFloat));
}

void check_feed_forward(Device gpu, int64_t dim, int64_t hidden, const Kind& kind, FeedForwardSaves saves) {
  Pair norm({dim}, gpu, 1, kind), w1({hidden, dim}, gpu, 0.1, kind), w2({dim, hidden}, gpu, 0.1, kind),
      w3({hidden, dim}, gpu, 0.1, kind);
  const Leaves h({300, dim}, gpu, kind);
  backward_both(feed_forward(h.cpu, {norm.cpu, kEps, w1.cpu, w2.cpu, w3.cpu}, FeedForwardSaves::kNothing),
                feed_forward(h.gpu, {norm.gpu, kEps, w1.gpu, w2.gpu, w3.gpu}, saves), kind);
  h.expect_close_grads();
  for (const Pair* pair : {&norm, &w1, &w2, &w3}) pair->expect_close_grads();
}

TEST_F(GpuOperators, FeedForwardMatchesTheCpu) {
  for_all_kinds([&](const Kind& kind) {
    check_feed_forward(gpu_, 256, 768, kind, FeedForwardSaves::kGateAndUp);
    check_feed_forward(gpu_, 256, 768, kind, FeedForwardSaves::kNothing);
    check_feed_forward(gpu_, 130, 301, kind, FeedForwardSaves::kGateAndUp);
  });
}

TEST_F(GpuOperators, FeedForwardGivesTheSameBitsHoweverMuchItKeeps) {
  for_all_kinds([&](const Kind& kind) {
    const int64_t dim = 256, hidden = 768;
    Pair norm({dim}, gpu_, 1, kind), w1({hidden, dim}, gpu_, 0.1, kind), w2({dim, hidden}, gpu_, 0.1, kind),
        w3({hidden, dim}, gpu_, 0.1, kind);
    const Leaves h({300, dim}, gpu_, kind), dy({300, dim}, gpu_, kind);
    std::vector<Tensors> grads;
    for (const auto saves : {FeedForwardSaves::kEverything, FeedForwardSaves::kGateAndUp, FeedForwardSaves::kNothing}) {
      const Tensor input = h.gpu.detach().clone().requires_grad_(true);
      feed_forward(input, {norm.gpu, kEps, w1.gpu, w2.gpu, w3.gpu}, saves).backward(dy.gpu.detach());
      grads.push_back({input.grad()});
      for (Pair* pair : {&norm, &w1, &w2, &w3}) {
        grads.back().push_back(pair->gpu.grad.clone());
        pair->gpu.zero_grad();
      }
      for (size_t i = 0; i < grads.back().size(); ++i) EXPECT_TRUE(at::equal(grads.back()[i], grads[0][i])) << i;
    }
  });
}

void check_embedding_and_head(Device gpu, int64_t vocabulary, int64_t dim, int64_t tokens, const Kind& kind) {
  Pair table({vocabulary, dim}, gpu, 1, kind), head({vocabulary, dim}, gpu, 0.1, kind);
  // Few ids in the first half: long runs of equal tokens.
  const Tensor ids = at::randint(vocabulary, {tokens}, at::kLong),
               labels = at::randint(vocabulary, {tokens}, at::kLong);
  ids.narrow(0, 0, tokens / 2).remainder_(5);
  labels.narrow(0, 10, 100).fill_(kIgnoreIndex);
  const double scale = 1.0 / static_cast<double>(tokens - 100);
  for (int pass = 0; pass < 2; ++pass) {  // the second adds to the gradients
    const Tensor on_cpu = head_loss(embedding(ids, table.cpu, at::kFloat), {head.cpu}, labels, scale);
    const Tensor on_gpu =
        head_loss(embedding(ids.to(gpu), table.gpu, kind.activations), {head.gpu}, labels.to(gpu), scale);
    on_cpu.backward();
    on_gpu.backward();
    EXPECT_NEAR(on_gpu.item<double>(), on_cpu.item<double>(), 0.1 * kind.limit() * on_cpu.item<double>());
  }
  table.expect_close_grads();
  head.expect_close_grads();
}

TEST_F(GpuOperators, EmbeddingAndHeadLossMatchTheCpu) {
  for_all_kinds([&](const Kind& kind) {
    check_embedding_and_head(gpu_, 3000, 128, 9000, kind);
    check_embedding_and_head(gpu_, 1009, 130, 3333, kind);
  });
}

TEST_F(GpuOperators, HeadLossWithoutGradientLeavesTheWeightAlone) {
  Pair head({500, 64}, gpu_, 0.1);
  const Tensor x = random_tensor({40, 64}).to(at::kBFloat16), labels = at::randint(500, {40}, at::kLong);
  const Tensor on_gpu = head_loss(x.to(gpu_), {head.gpu}, labels.to(gpu_), 1.0);
  EXPECT_NEAR(on_gpu.item<double>(), head_loss(x.to(at::kFloat), {head.cpu}, labels, 1.0).item<double>(), 1.0);
  EXPECT_FALSE(head.gpu.grad.defined());
}

}  // namespace
}  // namespace titanium::ops
