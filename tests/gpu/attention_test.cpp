// Attention on the GPU against the definition on the CPU in fp32, from the same inputs, which bf16 holds exactly: head
// dims that differ, scales, windows, chunks and sinks, each also inside documents and over a shared sequence.
#include "titanium/ops/attention/attention.h"

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include "tests/gpu/gpu_test.h"
#include "tests/support/documents.h"
#include "titanium/comm/world.h"
#include "titanium/ops/attention/context_attention.h"
#include "titanium/parallel/context_parallel.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using GpuAttention = test::GpuTest;

struct Case {
  int64_t head_dim = 64, value_dim = 64;
  bool documents = false;
  int64_t window = 0, chunk = 0;
  std::optional<double> scale = std::nullopt;
  bool sinks = false;
  int64_t batch = 2, seq_len = 256, heads = 8, kv_heads = 2;
  Dtype dtype = at::kBFloat16;

  Visible visible(Device device, const SequenceShare& share = {}) const {
    std::vector<int64_t> tokens(batch * seq_len, 1);
    for (size_t i = 0; i < tokens.size(); i += 37) tokens[i] = 0;
    return {.documents = documents ? test::find_documents(tokens, seq_len, 0, device, share) : nullptr,
            .window = window,
            .chunk = chunk};
  }
};

// Queries, keys, values, gradients of the output, and sinks.
using Inputs = std::vector<Tensor>;

Inputs random_inputs(const Case& c, int64_t tokens) {
  const auto make = [&](const Shape& shape) { return random_tensor(shape).to(at::kBFloat16).to(at::kFloat); };
  return {make({c.batch, tokens, c.heads, c.head_dim}), make({c.batch, tokens, c.kv_heads, c.head_dim}),
          make({c.batch, tokens, c.kv_heads, c.value_dim}), make({c.batch, tokens, c.heads, c.value_dim}),
          make({c.heads})};
}

using Function = std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v, const SoftmaxArgs& softmax)>;

// The output and all gradients.
Inputs results(const Case& c, const Inputs& inputs, Device device, Dtype dtype, const Function& function) {
  const auto leaf = [&](const Tensor& x) {
    return x.to(device, dtype, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true);
  };
  const Tensor q = leaf(inputs[0]), k = leaf(inputs[1]), v = leaf(inputs[2]);
  Parameter sinks("layers.0.attention.sinks", {c.heads});
  sinks.materialize(at::kFloat, device);
  {
    const c10::AutoGradMode no_grad(false);
    sinks.value.copy_(inputs[4]);
  }
  const Tensor out = function(q, k, v, {.scale = c.scale, .sinks = c.sinks ? &sinks : nullptr});
  EXPECT_TRUE(out.is_contiguous());
  out.backward(inputs[3].to(device, dtype));
  Inputs found = {out.detach(), q.grad(), k.grad(), v.grad()};
  if (c.sinks) found.push_back(sinks.grad);
  return found;
}

void expect_as_on_cpu(const Case& c, Device gpu) {
  const Inputs inputs = random_inputs(c, c.seq_len);
  const auto on = [&](Device device) -> Function {
    return
        [&c, visible = c.visible(device)](const Tensor& q, const Tensor& k, const Tensor& v,
                                          const SoftmaxArgs& softmax) { return attention(q, k, v, visible, softmax); };
  };
  const Inputs expected = results(c, inputs, at::kCPU, at::kFloat, on(at::kCPU));
  const Inputs found = results(c, inputs, gpu, c.dtype, on(gpu));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (c.window == 1 && (i == 1 || i == 2)) continue;  // one visible key: the gradients of scores are rounding alone
    SCOPED_TRACE(i);
    EXPECT_CLOSE(found[i], expected[i], 2 * test::tolerance(c.dtype));
  }
}

TEST_F(GpuAttention, UnequalDimsMatchTheCpu) {
  for (const bool documents : {false, true}) {
    for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
      expect_as_on_cpu({.head_dim = 192, .value_dim = 128, .documents = documents, .kv_heads = 8, .dtype = dtype},
                       gpu_);
      expect_as_on_cpu({.head_dim = 48, .value_dim = 32, .documents = documents, .scale = 0.2, .dtype = dtype}, gpu_);
    }
  }
}

TEST_F(GpuAttention, UnequalDimsAreReproducibleWhereThatIsAskedFor) {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  const Case c = {.head_dim = 192, .value_dim = 128, .seq_len = 1024, .kv_heads = 8};
  expect_as_on_cpu(c, gpu_);
  const Inputs inputs = random_inputs(c, c.seq_len);
  const auto run = [&] {
    return results(c, inputs, gpu_, c.dtype,
                   [](const Tensor& q, const Tensor& k, const Tensor& v, const SoftmaxArgs& softmax) {
                     return attention(q, k, v, {}, softmax);
                   });
  };
  const Inputs first = run(), second = run();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i]));
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST_F(GpuAttention, WindowsMatchTheCpu) {
  for (const int64_t window : {1, 17, 128, 1000}) {
    for (const bool documents : {false, true}) {
      for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
        expect_as_on_cpu({.documents = documents, .window = window, .dtype = dtype}, gpu_);
      }
    }
  }
}

TEST_F(GpuAttention, ChunksMatchTheCpu) {
  for (const int64_t chunk : {64, 100, 1000}) {
    for (const bool documents : {false, true}) expect_as_on_cpu({.documents = documents, .chunk = chunk}, gpu_);
  }
}

TEST_F(GpuAttention, SinksMatchTheCpu) {
  for (const int64_t window : {0, 32}) {
    for (const bool documents : {false, true}) {
      for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
        expect_as_on_cpu({.documents = documents, .window = window, .sinks = true, .dtype = dtype}, gpu_);
      }
    }
  }
}

// The peers of a fake group hold what this rank holds, so both devices compute the same function of the inputs.
void expect_shared_as_on_cpu(const Case& c, Device gpu) {
  constexpr int64_t kRanks = 4;
  const Inputs inputs = random_inputs(c, c.seq_len / kRanks);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const SequenceShare share{rank, kRanks, /*head_and_tail=*/true};
    const auto world = comm::make_fake_world(static_cast<int>(rank), kRanks);
    const auto exchange = parallel::make_context_exchange(world->group("cp", {0, 1, 2, 3}), share,
                                                          parallel::RotateMethod::kAllToAll, /*keys_at_once=*/1);
    const auto on = [&](Device device) -> Function {
      return [&, visible = c.visible(device, share)](const Tensor& q, const Tensor& k, const Tensor& v,
                                                     const SoftmaxArgs& softmax) {
        return context_attention(q, k, v, visible, *exchange, softmax);
      };
    };
    const Inputs expected = results(c, inputs, at::kCPU, at::kFloat, on(at::kCPU));
    const Inputs found = results(c, inputs, gpu, c.dtype, on(gpu));
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "result " << i << " of rank " << rank << ", window " << c.window << ", chunk "
                                      << c.chunk << ", head dim " << c.head_dim << ", documents " << c.documents);
      EXPECT_CLOSE(found[i], expected[i], 10 * test::tolerance(c.dtype));
    }
  }
}

TEST_F(GpuAttention, OverASharedSequenceMatchesTheCpu) {
  for (const bool documents : {false, true}) {
    expect_shared_as_on_cpu({.head_dim = 192, .value_dim = 128, .documents = documents, .kv_heads = 8}, gpu_);
    for (const int64_t window : {9, 50, 70}) {
      expect_shared_as_on_cpu({.documents = documents, .window = window, .sinks = true}, gpu_);
    }
    for (const int64_t chunk : {24, 64}) expect_shared_as_on_cpu({.documents = documents, .chunk = chunk}, gpu_);
  }
}

}  // namespace
}  // namespace titanium::ops
