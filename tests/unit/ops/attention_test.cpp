#include "titanium/ops/attention/attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "tests/support/documents.h"
#include "tests/support/tensors.h"
#include "titanium/ops/attention/attend_by_definition.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using test::tolerance;

constexpr int64_t kEos = 9;

struct Inputs {
  Tensor q, k, v;
};

Inputs random_inputs(int64_t batch, int64_t seq_len, int64_t heads, int64_t kv_heads, int64_t head_dim,
                     int64_t value_dim = 0, Dtype dtype = at::kFloat) {
  const auto make = [&](int64_t count, int64_t dim) {
    return random_tensor({batch, seq_len, count, dim}, dtype).requires_grad_(true);
  };
  return {make(heads, head_dim), make(kv_heads, head_dim), make(kv_heads, value_dim > 0 ? value_dim : head_dim)};
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

DocumentsPtr some_documents(int64_t rows, int64_t seq_len) {
  return test::find_documents(tokens_with_documents(rows * seq_len), seq_len, kEos, at::kCPU);
}

// One number per head as a parameter, and the same as a leaf for autograd's own path.
struct Sinks {
  Sinks(int64_t heads, Dtype dtype) : parameter("layers.0.attention.sinks", {heads}) {
    parameter.materialize(dtype, at::kCPU);
    const c10::AutoGradMode no_grad(false);
    parameter.value.copy_(random_tensor({heads}));
    leaf = parameter.value.detach().clone().requires_grad_(true);
  }
  Parameter parameter;
  Tensor leaf;
};

Tensor gradients_of(const Inputs& inputs) {
  return at::cat({inputs.q.grad().flatten(), inputs.k.grad().flatten(), inputs.v.grad().flatten()});
}

void expect_matches_definition(const Inputs& inputs, const Visible& visible, std::optional<double> scale = std::nullopt,
                               bool with_sinks = false) {
  const Dtype dtype = inputs.q.scalar_type();
  const Inputs reference = copy_of(inputs);
  Sinks sinks(inputs.q.size(2), dtype);
  const SoftmaxArgs softmax = {.scale = scale, .sinks = with_sinks ? &sinks.parameter : nullptr};
  const Tensor out = attention(inputs.q, inputs.k, inputs.v, visible, softmax);
  const Tensor expected = attention_by_definition(reference.q, reference.k, reference.v, visible, scale,
                                                  with_sinks ? sinks.leaf : Tensor());
  EXPECT_TRUE(out.is_contiguous());
  const Tensor grad = random_tensor(out.sizes().vec(), dtype);
  out.backward(grad);
  expected.backward(grad);
  EXPECT_CLOSE(out, expected, tolerance(dtype));
  // Together: where a token sees itself alone, those of queries and keys are nothing but rounding.
  EXPECT_CLOSE(gradients_of(inputs), gradients_of(reference), 5 * tolerance(dtype));
  if (with_sinks) EXPECT_CLOSE(sinks.parameter.grad, sinks.leaf.grad(), 5 * tolerance(dtype));
}

TEST(Attention, CausalMatchesTheDefinition) {
  expect_matches_definition(random_inputs(2, 37, 4, 4, 16), {});
  expect_matches_definition(random_inputs(1, 1, 2, 2, 8), {});
}

TEST(Attention, GroupedHeadsMatchTheDefinition) { expect_matches_definition(random_inputs(2, 19, 6, 2, 16), {}); }

TEST(Attention, DocumentsMatchTheDefinition) {
  expect_matches_definition(random_inputs(3, 21, 4, 2, 16), {.documents = some_documents(3, 21)});
}

TEST(Attention, UnequalHeadDimsAndAScaleMatchTheDefinition) {
  for (const auto& [head_dim, value_dim] : {std::pair{24, 16}, {16, 24}, {3, 5}}) {
    for (const DocumentsPtr& documents : {DocumentsPtr(), some_documents(2, 21)}) {
      expect_matches_definition(random_inputs(2, 21, 4, 2, head_dim, value_dim), {.documents = documents});
      expect_matches_definition(random_inputs(2, 21, 4, 4, head_dim, value_dim, at::kDouble), {.documents = documents},
                                /*scale=*/0.7);
    }
  }
}

// Every query sees exactly the keys that the words of the definition say.
TEST(Attention, TheMaskIsWindowChunkAndDocument) {
  constexpr int64_t kTokens = 13;
  const DocumentsPtr documents = some_documents(2, kTokens);
  for (const Visible& visible : {Visible{.window = 4}, Visible{.chunk = 5}, Visible{.window = 3, .chunk = 4},
                                 Visible{.documents = documents, .window = 2, .chunk = 6}}) {
    const Tensor seen = visible_keys(2, kTokens, kTokens, visible, at::kCPU).expand({2, 1, kTokens, kTokens});
    const auto document = [&](int64_t row, int64_t at) {
      return std::ranges::upper_bound(documents->boundaries, static_cast<int32_t>(row * kTokens + at));
    };
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t q = 0; q < kTokens; ++q) {
        for (int64_t k = 0; k < kTokens; ++k) {
          const bool expected = k <= q && (visible.window == 0 || q - k < visible.window) &&
                                (visible.chunk == 0 || q / visible.chunk == k / visible.chunk) &&
                                (!visible.documents || document(row, q) == document(row, k));
          EXPECT_EQ(seen[row][0][q][k].item<bool>(), expected) << row << " " << q << " " << k;
        }
      }
    }
  }
}

TEST(Attention, WindowsMatchTheDefinition) {
  for (const int64_t window : {2, 7, 64, 130, 1000}) {
    SCOPED_TRACE(window);
    expect_matches_definition(random_inputs(2, 131, 4, 2, 8, 8, at::kDouble), {.window = window});
    expect_matches_definition(random_inputs(2, 131, 4, 2, 8, 4, at::kDouble),
                              {.documents = some_documents(2, 131), .window = window}, 0.3);
  }
  // Documents that are longer than two bands.
  const std::vector<int32_t> starts = {0, 3, 200};
  expect_matches_definition(random_inputs(1, 211, 2, 1, 8, 8, at::kDouble),
                            {.documents = make_documents(starts, 1, 211, at::kCPU), .window = 5});
}

TEST(Attention, ChunksMatchTheDefinition) {
  for (const int64_t chunk : {1, 5, 8, 24, 100}) {
    SCOPED_TRACE(chunk);
    expect_matches_definition(random_inputs(2, 24, 4, 2, 8, 8, at::kDouble), {.chunk = chunk});
    expect_matches_definition(random_inputs(2, 24, 4, 2, 8, 6, at::kDouble),
                              {.documents = some_documents(2, 24), .window = 3, .chunk = chunk}, 0.5);
  }
}

TEST(Attention, SinksMatchTheDefinition) {
  for (const DocumentsPtr& documents : {DocumentsPtr(), some_documents(2, 30)}) {
    for (const int64_t window : {0, 4}) {
      for (const int64_t chunk : {0, 10}) {
        const Visible visible = {.documents = documents, .window = window, .chunk = chunk};
        expect_matches_definition(random_inputs(2, 30, 6, 2, 8, 8, at::kDouble), visible, std::nullopt, true);
        expect_matches_definition(random_inputs(2, 30, 6, 3, 8, 4, at::kFloat), visible, 0.4, true);
      }
    }
  }
}

TEST(Attention, GradientsOfSinksAddUp) {
  Sinks sinks(2, at::kDouble);
  Tensor once;
  for (int pass = 0; pass < 2; ++pass) {
    const Inputs inputs = {at::zeros({1, 3, 2, 4}, at::kDouble).requires_grad_(true),
                           at::zeros({1, 3, 2, 4}, at::kDouble), at::zeros({1, 3, 2, 4}, at::kDouble) + 1};
    attention(inputs.q, inputs.k, inputs.v, {}, {.sinks = &sinks.parameter}).sum().backward();
    if (pass == 0) once = sinks.parameter.grad.clone();
  }
  EXPECT_CLOSE(sinks.parameter.grad, 2 * once, 1e-12);
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
  const Tensor before = attention(inputs.q, inputs.k, inputs.v, {.documents = documents}).detach();
  {
    const c10::AutoGradMode no_grad(false);
    inputs.k.narrow(1, 0, 3).add_(5);
    inputs.v.narrow(1, 0, 3).add_(5);
  }
  const Tensor after = attention(inputs.q, inputs.k, inputs.v, {.documents = documents}).detach();
  EXPECT_TRUE(at::equal(before.narrow(1, 3, 3), after.narrow(1, 3, 3)));
  EXPECT_FALSE(at::equal(before.narrow(1, 0, 3), after.narrow(1, 0, 3)));
}

TEST(Attention, ShortQueriesAreTheLastTokens) {
  const Inputs inputs = random_inputs(1, 12, 4, 2, 8);
  const Tensor whole = attention_by_definition(inputs.q, inputs.k, inputs.v);
  const Tensor last = attention_by_definition(inputs.q.narrow(1, 10, 2), inputs.k, inputs.v);
  EXPECT_CLOSE(last, whole.narrow(1, 10, 2), tolerance(at::kFloat));
  const Visible visible = {.window = 3, .chunk = 4};
  EXPECT_CLOSE(attention_by_definition(inputs.q.narrow(1, 9, 3), inputs.k, inputs.v, visible),
               attention_by_definition(inputs.q, inputs.k, inputs.v, visible).narrow(1, 9, 3), tolerance(at::kFloat));
}

}  // namespace
}  // namespace titanium::ops
