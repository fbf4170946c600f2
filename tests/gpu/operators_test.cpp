// Every operator on the GPU in bf16 against the same operator on the CPU in fp32, from the same bf16 inputs.
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>

#include "tests/gpu/gpu_test.h"
#include "titanium/ops/attention.h"
#include "titanium/ops/embedding.h"
#include "titanium/ops/feed_forward.h"
#include "titanium/ops/head_loss.h"
#include "titanium/ops/init.h"
#include "titanium/ops/norm_qkv_rope.h"
#include "titanium/ops/rope.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using test::tolerance;
using GpuOperators = test::GpuTest;

constexpr double kEps = 1e-5;

// The same values, exact in bf16, as a parameter on each device.
struct Pair {
  Pair(const Shape& shape, Device gpu, double scale) : cpu("weight", shape), gpu("weight", shape) {
    const c10::AutoGradMode no_grad(false);
    const Tensor values = (random_tensor(shape) * scale).to(at::kBFloat16).to(at::kFloat);
    cpu.materialize(at::kFloat, at::kCPU);
    this->gpu.materialize(at::kFloat, gpu);
    cpu.value.copy_(values);
    this->gpu.value.copy_(values);
  }
  void expect_close_grads() const { EXPECT_CLOSE(gpu.grad, cpu.grad, tolerance(at::kBFloat16)); }
  Parameter cpu, gpu;
};

struct Leaves {
  Leaves(const Shape& shape, Device gpu_device) {
    const Tensor values = random_tensor(shape).to(at::kBFloat16);
    cpu = values.to(at::kFloat).requires_grad_(true);
    gpu = values.to(gpu_device).requires_grad_(true);
  }
  void expect_close_grads() const { EXPECT_CLOSE(gpu.grad(), cpu.grad(), tolerance(at::kBFloat16)); }
  Tensor cpu, gpu;
};

void backward_both(const Tensor& cpu, const Tensor& gpu) {
  EXPECT_CLOSE(gpu, cpu, tolerance(at::kBFloat16));
  const Tensor grad = random_tensor(cpu.sizes().vec()).to(at::kBFloat16);
  cpu.backward(grad.to(at::kFloat));
  gpu.backward(grad.to(gpu.device()));
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

void check_attention(Device gpu, int64_t seq_len, int64_t heads, int64_t kv_heads, int64_t head_dim,
                     bool with_documents) {
  const int64_t batch = 2;
  const Leaves q({batch, seq_len, heads, head_dim}, gpu), k({batch, seq_len, kv_heads, head_dim}, gpu),
      v({batch, seq_len, kv_heads, head_dim}, gpu);
  DocumentsPtr on_cpu, on_gpu;
  if (with_documents) {
    std::vector<int64_t> tokens(batch * seq_len, 1);
    for (size_t i = 0; i < tokens.size(); i += 37) tokens[i] = 0;
    on_cpu = find_documents(tokens, seq_len, 0, at::kCPU);
    on_gpu = find_documents(tokens, seq_len, 0, gpu);
  }
  backward_both(attention_by_definition(q.cpu, k.cpu, v.cpu, on_cpu), attention(q.gpu, k.gpu, v.gpu, on_gpu));
  for (const Leaves* leaves : {&q, &k, &v}) leaves->expect_close_grads();
}

TEST_F(GpuOperators, CausalAttentionMatchesTheDefinition) {
  check_attention(gpu_, 256, 4, 4, 64, false);
  check_attention(gpu_, 256, 16, 16, 16, false);
}
TEST_F(GpuOperators, GroupedAttentionMatchesTheDefinition) { check_attention(gpu_, 256, 8, 2, 128, false); }
TEST_F(GpuOperators, AttentionInsideDocumentsMatchesTheDefinition) { check_attention(gpu_, 256, 8, 2, 64, true); }

TEST_F(GpuOperators, AttentionInFloatMatchesTheCpu) {
  const Tensor q = random_tensor({2, 40, 8, 32}), k = random_tensor({2, 40, 2, 32}), v = random_tensor({2, 40, 2, 32});
  const Tensor on_gpu = attention(q.to(gpu_), k.to(gpu_), v.to(gpu_), nullptr);
  EXPECT_TRUE(on_gpu.is_contiguous());
  EXPECT_CLOSE(on_gpu, attention(q, k, v, nullptr), 10 * tolerance(at::kFloat));
}

TEST_F(GpuOperators, NormQkvRopeMatchesTheCpu) {
  const int64_t dim = 256, head_dim = 64, seq_len = 32;
  Pair norm({dim}, gpu_, 1), wq({256, dim}, gpu_, 0.1), wk({128, dim}, gpu_, 0.1), wv({128, dim}, gpu_, 0.1);
  const Leaves x({2 * seq_len, dim}, gpu_);
  const Tensor table = rope_table(head_dim, seq_len, 500000, RopeScaling{}, at::kCPU);
  const Qkv cpu = norm_qkv_rope(x.cpu, {norm.cpu, kEps, wq.cpu, wk.cpu, wv.cpu, head_dim, table});
  const Qkv gpu = norm_qkv_rope(x.gpu, {norm.gpu, kEps, wq.gpu, wk.gpu, wv.gpu, head_dim, table.to(gpu_)});
  EXPECT_CLOSE(gpu.k_BSKE, cpu.k_BSKE, tolerance(at::kBFloat16));
  const auto joined = [](const Qkv& qkv) {
    return qkv.q_BSHE.flatten(2).narrow(2, 0, 128) + qkv.k_BSKE.flatten(2) + qkv.v_BSKE.flatten(2);
  };
  backward_both(joined(cpu), joined(gpu));
  x.expect_close_grads();
  for (const Pair* pair : {&norm, &wq, &wk, &wv}) pair->expect_close_grads();
}

TEST_F(GpuOperators, FeedForwardMatchesTheCpu) {
  const int64_t dim = 256, hidden = 768;
  Pair norm({dim}, gpu_, 1), w1({hidden, dim}, gpu_, 0.1), w2({dim, hidden}, gpu_, 0.1), w3({hidden, dim}, gpu_, 0.1);
  const Leaves h({300, dim}, gpu_);
  backward_both(feed_forward(h.cpu, {norm.cpu, kEps, w1.cpu, w2.cpu, w3.cpu}, FeedForwardSaves::kNothing),
                feed_forward(h.gpu, {norm.gpu, kEps, w1.gpu, w2.gpu, w3.gpu}, FeedForwardSaves::kGateAndUp));
  h.expect_close_grads();
  for (const Pair* pair : {&norm, &w1, &w2, &w3}) pair->expect_close_grads();
}

TEST_F(GpuOperators, EmbeddingAndHeadLossMatchTheCpu) {
  const int64_t vocabulary = 3000, dim = 128, tokens = 9000;
  Pair table({vocabulary, dim}, gpu_, 1), head({vocabulary, dim}, gpu_, 0.1);
  const Tensor ids = at::randint(vocabulary, {tokens}, at::kLong),
               labels = at::randint(vocabulary, {tokens}, at::kLong);
  labels.narrow(0, 10, 100).fill_(kIgnoreIndex);
  const double scale = 1.0 / (tokens - 100);
  const Tensor cpu = head_loss(embedding(ids, table.cpu, at::kFloat), {head.cpu}, labels, scale);
  const Tensor gpu = head_loss(embedding(ids.to(gpu_), table.gpu, at::kBFloat16), {head.gpu}, labels.to(gpu_), scale);
  cpu.backward();
  gpu.backward();
  EXPECT_NEAR(gpu.item<double>(), cpu.item<double>(), 1e-3 * cpu.item<double>());
  table.expect_close_grads();
  head.expect_close_grads();
}

}  // namespace
}  // namespace titanium::ops
