// Attention over a shared sequence: the GPU against the CPU. The peers of a fake group hold what this rank holds, so
// both devices compute the same function of the inputs.
#include "titanium/ops/attention/context_attention.h"

#include "tests/gpu/gpu_test.h"
#include "tests/support/documents.h"
#include "titanium/comm/world.h"
#include "titanium/parallel/context_parallel.h"

namespace titanium::parallel {
namespace {

using test::random_tensor;
using GpuContextAttention = test::GpuTest;

constexpr int64_t kBatch = 2, kRanks = 4, kTokens = 64 * kRanks, kHeads = 8, kKvHeads = 2, kHeadDim = 64;

struct Inputs {
  Tensor q, k, v, grad;
};

std::vector<Tensor> results(const Inputs& inputs, Device device, Dtype dtype, const ops::SequenceShare& share,
                            RotateMethod method, bool with_documents) {
  std::vector<int64_t> tokens(kBatch * kTokens, 1);
  for (size_t i = 0; i < tokens.size(); i += 97) tokens[i] = 0;
  const auto documents = with_documents ? test::find_documents(tokens, kTokens, 0, device, share) : nullptr;
  const auto world = comm::make_fake_world(static_cast<int>(share.rank), kRanks);
  const auto exchange = make_context_exchange(world->group("cp", {0, 1, 2, 3}), share, method);
  const auto leaf = [&](const Tensor& x) {
    return x.to(device, dtype, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true);
  };
  const Tensor q = leaf(inputs.q), k = leaf(inputs.k), v = leaf(inputs.v);
  const Tensor out = ops::context_attention(q, k, v, {.documents = documents}, *exchange);
  EXPECT_TRUE(out.is_contiguous());
  out.backward(inputs.grad.to(device, dtype));
  return {out, q.grad(), k.grad(), v.grad()};
}

void expect_as_on_cpu(Device gpu, Dtype dtype) {
  const auto make = [&](int64_t heads) {
    return random_tensor({kBatch, kTokens / kRanks, heads, kHeadDim}).to(dtype).to(at::kFloat);
  };
  const Inputs inputs = {make(kHeads), make(kKvHeads), make(kKvHeads), make(kHeads)};
  for (const RotateMethod method : {RotateMethod::kAllGather, RotateMethod::kAllToAll}) {
    for (const bool head_and_tail : {false, true}) {
      for (const bool documents : {false, true}) {
        for (int64_t rank = 0; rank < kRanks; ++rank) {
          const ops::SequenceShare share{rank, kRanks, head_and_tail};
          const auto expected = results(inputs, at::kCPU, at::kFloat, share, method, documents);
          const auto found = results(inputs, gpu, dtype, share, method, documents);
          for (size_t i = 0; i < expected.size(); ++i) EXPECT_CLOSE(found[i], expected[i], 10 * test::tolerance(dtype));
        }
      }
    }
  }
}

TEST_F(GpuContextAttention, InBfloat16MatchesTheCpu) { expect_as_on_cpu(gpu_, at::kBFloat16); }
TEST_F(GpuContextAttention, InFloatMatchesTheCpu) { expect_as_on_cpu(gpu_, at::kFloat); }

}  // namespace
}  // namespace titanium::parallel
