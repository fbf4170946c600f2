#include "titanium/ops/attention/attention.h"

#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include "tests/support/documents.h"
#include "tests/support/tensors.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using test::tolerance;

constexpr int64_t kEos = 9;

struct Inputs {
  Tensor q, k, v;
};

Inputs random_inputs(int64_t batch, int64_t seq_len, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const auto make = [&](int64_t count) {
    return random_tensor({batch, seq_len, count, head_dim}).requires_grad_(true);
  };
  return {make(heads), make(kv_heads), make(kv_heads)};
}

Inputs copy_of(const Inputs& inputs) {
  const auto copy = [](const Tensor& x) { return x.detach().clone().requires_grad_(true); };
  return {copy(inputs.q), copy(inputs.k), copy(inputs.v)};
}

// Tokens in which each position ends a document with probability about 1/5.
std::vector<int64_t> tokens_with_documents(int64_t count) {
  std::vector<int64_t> tokens(count);
  for (int64_t i = 0; i < count; ++i) tokens[i] = (i * 7919 + 13) % 5 == 0 ? kEos : 1;
  return tokens;
}

void expect_matches_definition(const Inputs& inputs, const DocumentsPtr& documents) {
  const Inputs reference = copy_of(inputs);
  const Tensor out = attention(inputs.q, inputs.k, inputs.v, documents);
  const Tensor expected = attention_by_definition(reference.q, reference.k, reference.v, documents);
  const Tensor grad = random_tensor(out.sizes().vec());
  out.backward(grad);
  expected.backward(grad);
  EXPECT_CLOSE(out, expected, tolerance(at::kFloat));
  EXPECT_CLOSE(inputs.q.grad(), reference.q.grad(), 5 * tolerance(at::kFloat));
  EXPECT_CLOSE(inputs.k.grad(), reference.k.grad(), 5 * tolerance(at::kFloat));
  EXPECT_CLOSE(inputs.v.grad(), reference.v.grad(), 5 * tolerance(at::kFloat));
}

TEST(Attention, CausalMatchesTheDefinition) {
  expect_matches_definition(random_inputs(2, 37, 4, 4, 16), nullptr);
  expect_matches_definition(random_inputs(1, 1, 2, 2, 8), nullptr);
}

TEST(Attention, GroupedHeadsMatchTheDefinition) { expect_matches_definition(random_inputs(2, 19, 6, 2, 16), nullptr); }

TEST(Attention, DocumentsMatchTheDefinition) {
  const auto tokens = tokens_with_documents(3 * 21);
  expect_matches_definition(random_inputs(3, 21, 4, 2, 16), test::find_documents(tokens, 21, kEos, at::kCPU));
}

TEST(Attention, EndOfSequenceBelongsToTheDocumentItEnds) {
  const std::vector<int64_t> tokens = {1, kEos, 2, 3, /*row*/ 4, 5, 6, kEos};
  const auto documents = test::find_documents(tokens, 4, kEos, at::kCPU);
  EXPECT_EQ(documents->boundaries, (std::vector<int32_t>{0, 2, 4, 8}));
  EXPECT_EQ(documents->longest, 4);
}

TEST(Attention, ADocumentNeverSeesAnother) {
  const std::vector<int64_t> tokens = {1, 1, kEos, 1, 1, 1};
  const auto documents = test::find_documents(tokens, 6, kEos, at::kCPU);
  Inputs inputs = random_inputs(1, 6, 2, 2, 8);
  const Tensor before = attention(inputs.q, inputs.k, inputs.v, documents).detach();
  {
    const c10::AutoGradMode no_grad(false);
    inputs.k.narrow(1, 0, 3).add_(5);
    inputs.v.narrow(1, 0, 3).add_(5);
  }
  const Tensor after = attention(inputs.q, inputs.k, inputs.v, documents).detach();
  EXPECT_TRUE(at::equal(before.narrow(1, 3, 3), after.narrow(1, 3, 3)));
  EXPECT_FALSE(at::equal(before.narrow(1, 0, 3), after.narrow(1, 0, 3)));
}

TEST(Attention, ShortQueriesAreTheLastTokens) {
  const Inputs inputs = random_inputs(1, 12, 4, 2, 8);
  const Tensor whole = attention_by_definition(inputs.q, inputs.k, inputs.v, nullptr);
  const Tensor last = attention_by_definition(inputs.q.narrow(1, 10, 2), inputs.k, inputs.v, nullptr);
  EXPECT_CLOSE(last, whole.narrow(1, 10, 2), tolerance(at::kFloat));
}

}  // namespace
}  // namespace titanium::ops
