// Attention over a shared sequence against attention over the whole. Ranks are threads.
#include "titanium/parallel/context_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "tests/support/documents.h"
#include "tests/support/tensors.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/comm/flight_recorder.h"
#include "titanium/ops/attention/attention.h"
#include "titanium/ops/attention/context_attention.h"

namespace titanium::parallel {
namespace {

using ops::SequenceShare;
using test::random_tensor;

constexpr int64_t kEos = 9;

struct Inputs {
  Tensor q, k, v, grad;
};

Inputs random_inputs(int64_t batch, int64_t seq_len, int64_t heads, int64_t kv_heads, int64_t value_dim, Dtype dtype) {
  const auto make = [&](int64_t count, int64_t dim) { return random_tensor({batch, seq_len, count, dim}, dtype); };
  return {make(heads, 8), make(kv_heads, 8), make(kv_heads, value_dim), make(heads, value_dim)};
}

// The output and the gradients of q, k and v.
using Results = std::vector<Tensor>;

Results run_attention(const Inputs& inputs, const std::function<Tensor(const Inputs&)>& attention) {
  const auto leaf = [](const Tensor& x) { return x.detach().clone().requires_grad_(true); };
  const Inputs own = {leaf(inputs.q), leaf(inputs.k), leaf(inputs.v), inputs.grad};
  const Tensor out = attention(own);
  out.backward(own.grad);
  return {out.detach(), own.q.grad(), own.k.grad(), own.v.grad()};
}

// Few documents that go on over many chunks, and many that end inside one.
std::vector<int64_t> tokens_with_documents(int64_t batch, int64_t seq_len) {
  std::vector<int64_t> tokens(batch * seq_len, 1);
  for (int64_t i = 0; i < batch * seq_len; ++i) {
    const bool dense = i / seq_len % 2 == 0;
    if (dense ? (i * 7919 + 13) % 5 == 0 : i % (seq_len / 2 + 3) == 1) tokens[i] = kEos;
  }
  return tokens;
}

struct Case {
  int ranks;
  int64_t chunk;  // tokens
  bool head_and_tail;
  RotateMethod method;
  bool documents;
  int64_t batch = 2, heads = 6, kv_heads = 2;
  Dtype dtype = at::kDouble;
  int64_t keys_at_once = ops::kKeysAtOnce;
  int64_t value_dim = 8;
  int64_t window = 0, attention_chunk = 0;
  std::optional<double> scale = std::nullopt;
  bool sinks = false;
  bool causal = true;
};

// The same sinks on every rank.
std::unique_ptr<Parameter> make_sinks(const Tensor& values) {
  auto sinks = std::make_unique<Parameter>("layers.0.attention.sinks", Shape{values.size(0)});
  sinks->materialize(values.scalar_type(), at::kCPU);
  const c10::AutoGradMode no_grad(false);
  sinks->value.copy_(values);
  return sinks;
}

void expect_as_one_rank(const Case& c, double limit) {
  const SequenceShare whole{.rank = 0, .ranks = c.ranks, .head_and_tail = c.head_and_tail};
  const int64_t seq_len = whole.chunks() * c.chunk;
  const Inputs inputs = random_inputs(c.batch, seq_len, c.heads, c.kv_heads, c.value_dim, c.dtype);
  const std::vector<int64_t> tokens = tokens_with_documents(c.batch, seq_len);
  const auto visible = [&](const SequenceShare& share) -> ops::Visible {
    const auto documents = c.documents ? test::find_documents(tokens, seq_len, kEos, at::kCPU, share) : nullptr;
    return {.causal = c.causal, .documents = documents, .window = c.window, .chunk = c.attention_chunk};
  };
  const Tensor sinks = random_tensor({c.heads}, c.dtype).requires_grad_(true);
  const Results expected = run_attention(inputs, [&](const Inputs& x) {
    return ops::attention_by_definition(x.q, x.k, x.v, visible({}), c.scale, c.sinks ? sinks : Tensor());
  });
  std::vector<Results> results(c.ranks);
  std::vector<Tensor> sink_grads(c.ranks);
  test::run_ranks(c.ranks, [&](comm::World& world) {
    SequenceShare share = whole;
    share.rank = world.rank();
    std::vector<int> members(c.ranks);
    std::iota(members.begin(), members.end(), 0);
    const auto exchange = make_context_exchange(world.group("cp", members), share, c.method, c.keys_at_once);
    const auto mine = [&](const Tensor& x) { return ops::share_of(x, 1, share); };
    const Inputs own = {mine(inputs.q), mine(inputs.k), mine(inputs.v), mine(inputs.grad)};
    const auto own_sinks = make_sinks(sinks.detach());
    results[share.rank] = run_attention(own, [&](const Inputs& x) {
      return ops::context_attention(x.q, x.k, x.v, visible(share), *exchange,
                                    {.scale = c.scale, .sinks = c.sinks ? own_sinks.get() : nullptr});
    });
    sink_grads[share.rank] = own_sinks->grad;
  });
  if (c.sinks) {
    Tensor sum = at::zeros({c.heads}, c.dtype);
    for (const Tensor& grad : sink_grads) sum = sum + grad;
    EXPECT_CLOSE(sum, sinks.grad(), limit);
  }
  for (int rank = 0; rank < c.ranks; ++rank) {
    SequenceShare share = whole;
    share.rank = rank;
    std::vector<Tensor> found, wanted;
    for (size_t i = 0; i < expected.size(); ++i) {
      found.push_back(results[rank][i].flatten());
      wanted.push_back(ops::share_of(expected[i], 1, share).flatten());
    }
    EXPECT_CLOSE(found[0], wanted[0], limit);
    // Gradients together: where a token sees itself alone, those of queries and keys are nothing but rounding.
    EXPECT_CLOSE(at::cat({found[1], found[2], found[3]}), at::cat({wanted[1], wanted[2], wanted[3]}), limit);
  }
}

class ContextAttentionOnRanks : public testing::TestWithParam<int> {};

TEST_P(ContextAttentionOnRanks, IsAttentionOverTheWholeSequence) {
  for (const RotateMethod method : {RotateMethod::kAllGather, RotateMethod::kAllToAll}) {
    for (const bool head_and_tail : {false, true}) {
      for (const bool documents : {false, true}) {
        for (const int64_t chunk : {1, 5, 7}) {
          SCOPED_TRACE(fmt::format("method {}, head and tail {}, documents {}, chunks of {}", static_cast<int>(method),
                                   head_and_tail, documents, chunk));
          const int64_t batch = chunk == 5 ? 1 : 2;
          expect_as_one_rank({GetParam(), chunk, head_and_tail, method, documents, batch}, 1e-12);
        }
      }
    }
  }
}

TEST_P(ContextAttentionOnRanks, WithPartsOneByOneIsTheSame) {
  for (const bool head_and_tail : {false, true}) {
    for (const bool documents : {false, true}) {
      expect_as_one_rank({.ranks = GetParam(),
                          .chunk = 5,
                          .head_and_tail = head_and_tail,
                          .method = RotateMethod::kAllToAll,
                          .documents = documents,
                          .keys_at_once = 1},
                         1e-12);
    }
  }
}

TEST_P(ContextAttentionOnRanks, WithUnequalDimsScaleAndSinksIsTheSame) {
  for (const RotateMethod method : {RotateMethod::kAllGather, RotateMethod::kAllToAll}) {
    for (const bool documents : {false, true}) {
      expect_as_one_rank({.ranks = GetParam(),
                          .chunk = 5,
                          .head_and_tail = true,
                          .method = method,
                          .documents = documents,
                          .keys_at_once = 1,
                          .value_dim = 4,
                          .scale = 0.6,
                          .sinks = true},
                         1e-12);
    }
  }
}

TEST_P(ContextAttentionOnRanks, WithoutCausalityIsTheSame) {
  for (const RotateMethod method : {RotateMethod::kAllGather, RotateMethod::kAllToAll}) {
    for (const bool head_and_tail : {false, true}) {
      for (const int64_t keys_at_once : {int64_t{1}, ops::kKeysAtOnce}) {
        expect_as_one_rank({.ranks = GetParam(),
                            .chunk = 3,
                            .head_and_tail = head_and_tail,
                            .method = method,
                            .documents = false,
                            .keys_at_once = keys_at_once,
                            .causal = false},
                           1e-12);
      }
    }
  }
}

TEST_P(ContextAttentionOnRanks, WithWindowsAndChunksIsTheSame) {
  for (const auto& [window, chunk] : {std::pair{3, 0}, {2, 0}, {4, 0}, {11, 0}, {0, 3}, {0, 8}, {0, 20}, {6, 9}}) {
    for (const bool head_and_tail : {false, true}) {
      for (const bool documents : {false, true}) {
        SCOPED_TRACE(fmt::format("window {}, chunks of {}, head and tail {}, documents {}", window, chunk,
                                 head_and_tail, documents));
        expect_as_one_rank({.ranks = GetParam(),
                            .chunk = 4,
                            .head_and_tail = head_and_tail,
                            .method = documents ? RotateMethod::kAllGather : RotateMethod::kAllToAll,
                            .documents = documents,
                            .window = window,
                            .attention_chunk = chunk},
                           1e-12);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OneToEight, ContextAttentionOnRanks, testing::Range(1, 9));

TEST(ContextAttention, KeepsThePrecisionOfTheDtype) {
  for (const RotateMethod method : {RotateMethod::kAllGather, RotateMethod::kAllToAll}) {
    for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
      expect_as_one_rank({4, 9, true, method, false, 1, 4, 4, dtype}, 5 * test::tolerance(dtype));
    }
  }
}

std::vector<comm::CollectiveRecord> records_of_rank_0(RotateMethod method, int64_t keys_at_once = ops::kKeysAtOnce) {
  comm::flight_recorder().set_capacity(1000);
  expect_as_one_rank({.ranks = 4,
                      .chunk = 2,
                      .head_and_tail = true,
                      .method = method,
                      .documents = false,
                      .batch = 1,
                      .keys_at_once = keys_at_once},
                     1e-12);
  std::vector<comm::CollectiveRecord> records = comm::flight_recorder().records();
  std::erase_if(records, [](const comm::CollectiveRecord& record) { return record.group->rank != 0; });
  return records;
}

TEST(ContextExchange, TheRotateMethodIsTheOneThatWasAskedFor) {
  const auto count = [](const auto& records, std::string_view name) {
    return std::ranges::count(records, name, [](const auto& record) { return std::string_view(record.name); });
  };
  const auto gathered = records_of_rank_0(RotateMethod::kAllGather);
  EXPECT_EQ(count(gathered, "all_gather"), 2 * 2);  // heads and tails, forward and backward
  EXPECT_EQ(count(gathered, "reduce_scatter"), 2);
  EXPECT_EQ(count(gathered, "all_to_all"), 0);
  const auto rotated = records_of_rank_0(RotateMethod::kAllToAll, /*keys_at_once=*/1);
  EXPECT_EQ(count(rotated, "all_to_all"), 3 + 3 + 4);  // keys and values, again, and gradients with the way home
  EXPECT_EQ(count(rotated, "all_gather"), 0);
  // Keys and values of one rank: 4 tokens, 2 x 2 heads of 8 in fp64.
  for (const auto& record : rotated) EXPECT_EQ(record.bytes, 4 * 4 * 8 * 8);
}

TEST(ContextExchange, BundlesTakeFewerAndLargerMessages) {
  EXPECT_EQ(ops::bundle_width(8, 4096), 4);
  EXPECT_EQ(ops::bundle_width(8, 16384), 1);
  EXPECT_EQ(ops::bundle_width(8, 1), 4);  // at least two bundles
  EXPECT_EQ(ops::bundle_width(6, 1), 2);
  EXPECT_EQ(ops::bundle_width(3, 1), 1);
  const auto records = records_of_rank_0(RotateMethod::kAllToAll);
  const auto count = [&](int64_t parts) {
    return std::ranges::count(records, parts * 4 * 4 * 8 * 8, &comm::CollectiveRecord::bytes);
  };
  EXPECT_EQ(count(1), 1 + 1 + 1);  // to make the bundle, again, and home from it
  EXPECT_EQ(count(2), 1 + 1 + 2);  // keys and values, again, and gradients with the way back
  EXPECT_EQ(records.size(), 7);
}

TEST(ContextExchange, TheNextPartIsOnItsWayWhileThisOneIsComputed) {
  constexpr int64_t kRanks = 4;
  comm::flight_recorder().set_capacity(1000);
  const auto world = comm::make_fake_world(/*rank=*/1, kRanks);
  const auto exchange = make_context_exchange(world->group("cp", {0, 1, 2, 3}), {1, kRanks, true},
                                              RotateMethod::kAllToAll, /*keys_at_once=*/1);
  const auto parts = exchange->bring(random_tensor({1, 2, 32}), std::nullopt);
  for (int64_t step = 0; parts->next(); ++step) {
    const auto records = comm::flight_recorder().records();
    const auto under_way =
        std::ranges::count(records, comm::CollectiveRecord::State::kIssued, &comm::CollectiveRecord::state);
    EXPECT_EQ(under_way, step + 1 < kRanks ? 1 : 0) << "step " << step;
  }
}

}  // namespace
}  // namespace titanium::parallel
