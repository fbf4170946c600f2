#include "tests/support/tiny_llama.h"
#include "titanium/models/llama3/model.h"

namespace titanium::models::llama3 {
namespace {

HuggingFacePiece piece_of(const Llama3& model, const std::string& fqn) {
  const std::vector<HuggingFacePiece> pieces = model.hugging_face()->pieces(fqn, {64, 32});
  EXPECT_EQ(pieces.size(), 1u);
  return pieces.front();
}

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
  const Llama3 model(test::tiny_llama(16));
  for (const auto& [ours, theirs] : names) EXPECT_EQ(piece_of(model, ours).name, theirs);
}

TEST(Llama3StateDict, RowsOfQueriesAndKeysFollowTheFormulaWhereverTheyAreCut) {
  const Args args = test::tiny_llama(16, /*kv_heads=*/2);
  const Llama3 model(args);
  const int64_t half = args.head_dim / 2;
  for (const auto& [name, heads] : {std::pair{"wq", args.n_heads}, {"wk", args.n_kv_heads}}) {
    const HuggingFacePiece piece = piece_of(model, fmt::format("layers.1.attention.{}.weight", name));
    const int64_t rows = heads * args.head_dim;
    for (int64_t begin = 0; begin < rows; ++begin) {
      for (int64_t end = begin; end <= rows; ++end) {
        std::map<int64_t, int64_t> theirs_of_ours;
        for (const RowRun& run : row_runs(piece, begin, end - begin)) {
          for (int64_t i = 0; i < run.count; ++i) theirs_of_ours[run.ours + i * run.step] = run.theirs + i;
        }
        ASSERT_EQ(static_cast<int64_t>(theirs_of_ours.size()), end - begin);
        for (const auto& [ours, theirs] : theirs_of_ours) {
          const int64_t head = ours / args.head_dim, inside = ours % args.head_dim;
          ASSERT_TRUE(ours >= begin && ours < end);
          ASSERT_EQ(theirs, head * args.head_dim + inside % 2 * half + inside / 2);
        }
      }
    }
  }
}

TEST(Llama3StateDict, OtherRowsAreInOrder) {
  const Llama3 model(test::tiny_llama(16));
  for (const char* name : {"layers.0.attention.wv.weight", "layers.0.attention.wo.weight", "norm.weight"}) {
    EXPECT_EQ(row_runs(piece_of(model, name), 3, 4), (std::vector<RowRun>{{3, 3, 1, 4}}));
  }
}

}  // namespace
}  // namespace titanium::models::llama3
