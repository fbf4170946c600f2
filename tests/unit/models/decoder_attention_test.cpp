// The kinds of attention that a decoder's block can have: decoding, what is kept, sizes.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>

#include "tests/support/mixed_attention.h"
#include "tests/support/tensors.h"
#include "titanium/ops/init.h"

namespace titanium::models {
namespace {

std::unique_ptr<decoder::Decoder> made_ready(std::unique_ptr<decoder::Decoder> model) {
  model->materialize(at::kFloat, at::kCPU);
  model->build_buffers(at::kCPU);
  model->init_weights(1);
  // Large enough that a mask or a position that is wrong is seen.
  for (Parameter* parameter : model->parameters()) {
    if (parameter->fqn.find("attention.w") != std::string::npos) ops::init_normal(*parameter, 7, 0.3);
  }
  return model;
}

std::unique_ptr<decoder::Decoder> ready_model(int64_t seq_len) { return made_ready(test::make_mixed_model(seq_len)); }

// With positions that start again and attention that stays inside, nothing tells a document from one that is alone.
TEST(DecoderAttention, ADocumentAmongOthersIsAsOneThatIsAlone) {
  constexpr int64_t kTokens = 40;
  const std::vector<int32_t> starts = {0, 20, 30, 40, 50};  // where chunks of 10 tokens start, too
  const c10::AutoGradMode no_grad(false);
  const auto model = made_ready(test::make_mixed_model(kTokens, /*documents=*/true));
  const Tensor tokens = at::randint(model->vocabulary(), {2, kTokens}, at::kLong);
  const TokenBatch counted_on{tokens, ops::make_documents(starts, 2, kTokens, at::kCPU)};
  TokenBatch batch = counted_on;
  batch.positions_BS = at::empty_like(tokens);
  const auto end_of = [&](size_t i) { return i + 1 < starts.size() ? starts[i + 1] : 2 * kTokens; };
  for (size_t i = 0; i < starts.size(); ++i) {
    batch.positions_BS.flatten().slice(0, starts[i], end_of(i)).copy_(at::arange(end_of(i) - starts[i]));
  }
  const Tensor logits = model->logits(batch).flatten(0, 1);
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto document = [&](const Tensor& x) { return x.slice(0, starts[i], end_of(i)).unsqueeze(0); };
    const Tensor alone = model->logits({document(tokens.flatten()), nullptr});
    EXPECT_CLOSE(document(logits), alone, 10 * test::tolerance(at::kFloat));
  }
  // Rope tells differences of positions alone, but queries grow with them.
  EXPECT_GT(test::relative_error(model->logits(counted_on).flatten(0, 1), logits), 1e-2);
}

TEST(DecoderAttention, DecodingTokenByTokenIsTheForwardPass) {
  constexpr int64_t kTokens = 23;
  const auto model = ready_model(32);
  const c10::AutoGradMode no_grad(false);
  const Tensor tokens = at::randint(model->vocabulary(), {2, kTokens}, at::kLong);
  const Tensor logits = model->logits({tokens, nullptr});
  for (const int64_t first : {1, 9}) {  // tokens of the prompt
    nn::KvCache cache = model->make_cache(2, kTokens);
    for (int64_t at = 0; at < kTokens;) {
      const int64_t count = at == 0 ? first : 1;
      const Tensor found = model->decode(tokens.narrow(1, at, count), cache);
      at += count;
      EXPECT_CLOSE(found, logits.select(1, at - 1), 10 * test::tolerance(at::kFloat));
    }
  }
}

TEST(DecoderAttention, TheCacheOfLatentsIsSmall) {
  const auto model = test::make_mixed_model(32);
  const auto shape = [&](int64_t layer) {
    return dynamic_cast<const decoder::Block&>(*model->block(layer)).attention().cache_shape();
  };
  EXPECT_EQ(shape(0).heads * (shape(0).key_dim + shape(0).value_dim), 10 + 8);
  EXPECT_EQ(shape(2).heads * (shape(2).key_dim + shape(2).value_dim), 2 * (8 + 8));
  EXPECT_EQ(model->key_value_width(), 4 * (13 + 6));  // what context parallelism exchanges
}

TEST(DecoderAttention, TheCacheOfAWindowStopsGrowing) {
  const auto shape = test::MixedAttention(32, false).attention(2)->cache_shape();
  EXPECT_EQ(shape.window, 5);
  nn::KvCache cache({shape}, /*batch=*/1, /*max_tokens=*/100, at::kFloat, at::kCPU);
  EXPECT_EQ(cache.bytes(), 0);
  const auto append = [&](int64_t count) {
    const Tensor fresh = test::random_tensor({1, count, 2, 8});
    const auto view = cache.append(0, fresh, fresh);
    cache.advance(count);
    EXPECT_TRUE(view.k_BSKE.narrow(1, view.k_BSKE.size(1) - count, count).equal(fresh));
    return view.k_BSKE.size(1);
  };
  EXPECT_EQ(append(3), 3);
  EXPECT_EQ(append(1), 4);
  EXPECT_EQ(append(7), 4 + 7);
  EXPECT_EQ(append(1), 5);
  EXPECT_EQ(append(1), 5);
  EXPECT_EQ(cache.length(), 13);
  EXPECT_EQ(cache.bytes(), 2 * 5 * 16 * 4);
}

// Bytes that this thread has allocated on the CPU and not freed.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override { count += bytes; }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t count = 0;
};

TEST(DecoderAttention, KeepsTheBytesThatItSays) {
  constexpr int64_t kBatch = 2, kTokens = 60;
  const Tensor table = test::MixedAttention(kTokens, false).rope_table(at::kCPU);
  for (int64_t layer = 0; layer < test::kMixedLayers; ++layer) {
    const auto attention = test::MixedAttention(kTokens, false).attention(layer);
    attention->materialize(at::kFloat, at::kCPU);
    attention->init_weights({.seed = 1});
    nn::RmsNorm norm(fmt::format("layers.{}.attention_norm", layer), 32, 1e-5);
    norm.materialize(at::kFloat, at::kCPU);
    ops::init_constant(norm.weight, 1);
    const Tensor x = test::random_tensor({kBatch * kTokens, 32}).requires_grad_(true);
    const decoder::BlockContext context{table, nullptr, ops::all_rows_here()};
    attention->forward(x, norm, context);  // builds what stays
    const auto live = std::make_shared<LiveBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
    const Tensor out = attention->forward(x, norm, context);
    // The result and the norm's rstd are counted outside of attention.
    const int64_t kept = live->count - out.numel() * 4 - kBatch * kTokens * 4;
    const int64_t said = kBatch * kTokens * attention->kept_bytes(at::kFloat);
    EXPECT_GE(kept, said) << layer;
    EXPECT_LE(kept, said + 4096) << layer;  // small tensors of the size of a sequence
  }
}

TEST(DecoderAttention, CountsMultiplicationsOfBothHeadDims) {
  const test::MixedAttention family(32, false);
  EXPECT_EQ(family.attention(0)->score_multiplications(100), 4 * (13 + 6) * 100);
  EXPECT_EQ(family.attention(2)->score_multiplications(100), 4 * (8 + 8) * 100);
}

TEST(DecoderAttention, ParametersHaveTorchtitansNames) {
  const test::MixedAttention family(32, false);
  const auto names = [&](int64_t layer) {
    std::vector<std::string> found;
    const std::string prefix = fmt::format("layers.{}.attention.", layer);
    const auto attention = family.attention(layer);
    for (const Parameter* parameter : attention->parameters()) {
      EXPECT_TRUE(parameter->fqn.starts_with(prefix));
      found.push_back(parameter->fqn.substr(prefix.size()));
    }
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(0), (Names{"wq_a.weight", "q_norm.weight", "wq_b.weight", "wkv_a.weight", "kv_norm.weight",
                             "wkv_b.weight", "wo.weight"}));
  EXPECT_EQ(names(1), (Names{"wq.weight", "wkv_a.weight", "kv_norm.weight", "wkv_b.weight", "wo.weight"}));
  EXPECT_EQ(names(2), (Names{"wq.weight", "wq.bias", "wk.weight", "wk.bias", "wv.weight", "wv.bias", "wo.weight",
                             "wo.bias", "sinks"}));
}

TEST(DecoderAttention, InitialDeviationsAreTheReferences) {
  const test::MixedAttention family(32, false);
  const auto deviation = [&](int64_t layer, const std::string& name) {
    const auto attention = family.attention(layer);
    attention->materialize(at::kFloat, at::kCPU);
    attention->init_weights({.seed = 3, .residual_std = 0.005});
    for (const Parameter* parameter : attention->parameters()) {
      if (parameter->fqn.ends_with(name)) return parameter->value.square().mean().sqrt().item<double>();
    }
    return 0.0;
  };
  for (const char* name : {"wq_a.weight", "wq_b.weight", "wkv_a.weight", "wkv_b.weight"}) {
    EXPECT_NEAR(deviation(0, name), 0.02, 0.004) << name;
  }
  EXPECT_NEAR(deviation(0, "wo.weight"), 0.005, 0.001);
  EXPECT_EQ(deviation(0, "kv_norm.weight"), 1);
  EXPECT_NEAR(deviation(2, "wq.weight"), 0.005, 0.001);
  EXPECT_NEAR(deviation(2, "wo.bias"), 0.005, 0.003);
  EXPECT_GT(deviation(2, "sinks"), 0);
  EXPECT_NEAR(deviation(3, "wq.weight"), 0.02, 0.004);
}

}  // namespace
}  // namespace titanium::models
