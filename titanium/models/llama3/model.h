// Llama 2 and 3: decoder-only, pre-norm, SwiGLU, rotary positions, grouped-query attention.
// Shapes: B batch, S sequence, T = B*S tokens, D model dim, H heads, K key/value heads, E head dim, V vocabulary.
#pragma once

#include <memory>
#include <vector>

#include "titanium/models/language_model.h"
#include "titanium/models/llama3/args.h"
#include "titanium/nn/layers.h"
#include "titanium/ops/norm_qkv_rope.h"

namespace titanium::models::llama3 {

struct Attention : nn::Module {
  Attention(const std::string& fqn, const Args& args);
  nn::Linear wq, wk, wv, wo;
};

struct FeedForward : nn::Module {
  FeedForward(const std::string& fqn, const Args& args);
  nn::Linear w1, w2, w3;
};

class TransformerBlock : public nn::Module {
 public:
  TransformerBlock(int64_t layer, const Args& args);

  // x is this rank's rows of [T, D]; the table's rows are the positions of one sequence.
  Tensor forward(const Tensor& x_tD, const Tensor& rope_table, const ops::DocumentsPtr& documents);
  Tensor decode(const Tensor& x_TD, const Tensor& rope_table, nn::KvCache& cache);
  void init_weights(uint64_t seed, int64_t n_layers, bool depth_init);

  // Whether w2's input waits for the backward in float8, if everything is kept.
  bool keeps_float8_product() const {
    const auto& float8 = feed_forward_.w2.weight.float8;
    return float8 && !float8->emulate && float8->recipe != Float8Recipe::kRowwiseWithGwHp;
  }

  nn::BlockSaves saves = nn::BlockSaves::kEverything;
  ops::RowExchange* exchange = &ops::all_rows_here();
  ops::ContextExchange* context = nullptr;  // null: whole sequences are here

 private:
  ops::NormQkvRopeArgs attention_args(const Tensor& rope_table);
  Tensor forward_once(const Tensor& x_tD, const Tensor& rope_table, const ops::DocumentsPtr& documents);
  Tensor feed_forward_half(const Tensor& h_tD);

  int64_t layer_;
  int64_t head_dim_;
  nn::RmsNorm attention_norm_;
  Attention attention_;
  nn::RmsNorm ffn_norm_;
  FeedForward feed_forward_;
};

class Llama3 : public LanguageModel {
 public:
  explicit Llama3(const Args& args);
  Llama3(const Args& args, const std::vector<ModelStage>& stages);  // the children of these alone

  void init_weights(uint64_t seed) override;
  void build_buffers(Device device) override;
  Tensor loss(const TokenBatch& batch, const Tensor& labels_BS, double scale) override;
  Tensor run_stage(const ModelStage& stage, const Tensor& x_tD, const TokenBatch& batch, const Tensor& labels_BS,
                   double scale) override;
  int64_t hidden_size() const override { return args_.dim; }
  std::unique_ptr<LanguageModel> part(const std::vector<ModelStage>& stages) const override {
    return std::make_unique<Llama3>(args_, stages);
  }
  Parameter* shared_by_ends() override {
    return args_.tied_embeddings && tok_embeddings_ ? &tok_embeddings_->weight : nullptr;
  }
  Tensor logits(const TokenBatch& batch) override;
  Tensor decode(const Tensor& tokens_BS, nn::KvCache& cache) override;
  nn::KvCache make_cache(int64_t batch, int64_t max_tokens) const override;

  std::vector<nn::Unit*> units() override;
  const parallel::TensorParallelPlan& tensor_parallel_plan() const override;
  void check_tensor_parallel(int64_t degree) const override;
  void set_row_exchange(ops::RowExchange& exchange, bool loss_parallel) override;
  void set_context_exchange(ops::ContextExchange& exchange) override;
  HuggingFaceTensor hugging_face_tensor(const std::string& fqn) const override;
  std::string hugging_face_config(Dtype dtype) const override { return to_config_json(args_, dtype); }
  bool is_redundant(const std::string& name) const override;

  int64_t block_count() const override { return args_.n_layers; }
  bool has_block(int64_t block) const override { return layers_[block] != nullptr; }
  void set_block_saves(int64_t block, nn::BlockSaves saves) override { layers_[block]->saves = saves; }
  bool attends_inside_documents() const override { return args_.attn_mask_type == "block_causal"; }
  int64_t vocabulary() const override { return args_.vocab_size; }
  int64_t max_seq_len() const override { return args_.max_seq_len; }
  ModelSize size(int64_t seq_len) const override;
  int64_t saved_bytes_per_token(nn::BlockSaves saves) const override;
  int64_t backward_bytes_per_token(nn::BlockSaves saves) const override;
  int64_t head_bytes(int64_t tokens) const override;
  int64_t key_value_width() const override { return 2 * args_.n_kv_heads * args_.head_dim; }
  std::string description() const override { return to_json(args_); }
  const Args& args() const { return args_; }

 private:
  void build_units();
  Parameter& head() { return output_ ? output_->weight : tok_embeddings_->weight; }
  Tensor embed(const Tensor& tokens_BS);
  Tensor rope_rows(int64_t seq_len);  // of the positions of this rank's tokens
  // This rank's rows of [T, D] after these blocks, before the last norm.
  Tensor run_blocks(const std::vector<int64_t>& blocks, Tensor x_tD, const TokenBatch& batch);
  Tensor hidden_states(const TokenBatch& batch);
  Tensor head_loss(const Tensor& x_tD, const Tensor& labels_BS, double scale);

  Args args_;
  // What this part of the model does not have is null.
  std::unique_ptr<nn::Embedding> tok_embeddings_;
  std::vector<std::unique_ptr<TransformerBlock>> layers_;
  std::unique_ptr<nn::RmsNorm> norm_;
  std::unique_ptr<nn::Linear> output_;  // null with tied embeddings
  Tensor rope_table_;
  Tensor rope_share_;  // with context parallelism: this rank's rows for the last sequence length
  Device rope_device_ = at::kCPU;

  // Tied weights are used at both ends, so they stay gathered in between: they belong to the root.
  std::unique_ptr<nn::Unit> root_unit_, embedding_unit_, head_unit_;
  std::vector<std::unique_ptr<nn::Unit>> block_units_;
  ops::RowExchange* exchange_ = &ops::all_rows_here();
  ops::ContextExchange* context_ = nullptr;
  bool loss_parallel_ = true;
};

}  // namespace titanium::models::llama3
