#include <ATen/ops/arange.h>

#include "titanium/models/llama3/state_dict_adapter.h"

namespace titanium::models::llama3 {
namespace {

TEST(Llama3StateDict, NamesAreHuggingFaces) {
  const std::map<std::string, std::string> names = {
      {"tok_embeddings.weight", "model.embed_tokens.weight"},
      {"norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"},
      {"layers.0.attention_norm.weight", "model.layers.0.input_layernorm.weight"},
      {"layers.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"},
      {"layers.31.attention.wq.weight", "model.layers.31.self_attn.q_proj.weight"},
      {"layers.31.attention.wk.weight", "model.layers.31.self_attn.k_proj.weight"},
      {"layers.31.attention.wv.weight", "model.layers.31.self_attn.v_proj.weight"},
      {"layers.31.attention.wo.weight", "model.layers.31.self_attn.o_proj.weight"},
      {"layers.7.feed_forward.w1.weight", "model.layers.7.mlp.gate_proj.weight"},
      {"layers.7.feed_forward.w2.weight", "model.layers.7.mlp.down_proj.weight"},
      {"layers.7.feed_forward.w3.weight", "model.layers.7.mlp.up_proj.weight"},
  };
  for (const auto& [ours, theirs] : names) EXPECT_EQ(hugging_face_name(ours), theirs);
}

TEST(Llama3StateDict, RowsOfQueriesAndKeysFollowTheFormulaAndComeBack) {
  constexpr int64_t kHeadDim = 8, kDim = 5;
  for (const int64_t heads : {1, 2, 6}) {
    const Tensor ours = at::arange(heads * kHeadDim * kDim, at::kFloat).reshape({heads * kHeadDim, kDim});
    const Tensor theirs = rows_to_hugging_face(ours, heads);
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < kHeadDim / 2; ++i) {
        for (int64_t j = 0; j < 2; ++j) {
          EXPECT_TRUE(theirs[head * kHeadDim + j * kHeadDim / 2 + i].equal(ours[head * kHeadDim + 2 * i + j]));
        }
      }
    }
    EXPECT_TRUE(rows_from_hugging_face(theirs, heads).equal(ours));
  }
}

}  // namespace
}  // namespace titanium::models::llama3
