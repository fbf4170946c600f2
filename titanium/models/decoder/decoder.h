// A decoder-only transformer: embedding, blocks, last norm, head. It exists once; families say what is in the blocks.
// Shapes: B batch, S sequence, T = B*S tokens, t this rank's rows of them, D model dim, V vocabulary.
#pragma once

#include <memory>
#include <vector>

#include "titanium/models/decoder/block.h"
#include "titanium/models/decoder/family.h"
#include "titanium/models/language_model.h"

namespace titanium::models::decoder {

class Decoder : public LanguageModel, public Decoding, public ModelCosts {
 public:
  explicit Decoder(std::shared_ptr<const Family> family);
  Decoder(std::shared_ptr<const Family> family, const std::vector<ModelStage>& stages);  // the children of these alone

  void init_weights(uint64_t seed) override;
  void build_buffers(Device device) override;
  Tensor run_stage(const ModelStage& stage, const Tensor& x_tD, const TokenBatch& batch, const Tensor& labels_BS,
                   double scale) override;
  std::unique_ptr<Model> part(const std::vector<ModelStage>& stages) const override;
  Parameter* shared_by_ends() override;

  schedule::ModelChildren children() const override;
  int64_t block_count() const override { return args().n_layers; }
  nn::Block* block(int64_t block) override { return blocks_[static_cast<size_t>(block)].get(); }
  nn::SaveLevels levels_of(int64_t block) const override;
  std::vector<nn::Unit*> units() override;

  parallel::TensorParallelPlan tensor_parallel_plan() const override;
  void check_tensor_parallel(int64_t degree) const override;
  void set_row_exchange(ops::RowExchange& exchange, bool loss_parallel) override;
  void set_context_exchange(ops::ContextExchange& exchange) override;
  void set_expert_exchange(ops::ExpertExchange& exchange, bool cut_by_rows) override;
  void force_expert_balance() override { experts_.force_balance = true; }
  void set_router_losses(const ops::RouterLosses& losses) override { experts_.losses = losses; }
  void before_update(const parallel::Mesh& mesh) override;
  ExpertLoads expert_loads() const override { return expert_loads_; }

  int64_t hidden_size() const override { return args().dim; }
  int64_t vocabulary() const override { return args().vocab_size; }
  int64_t max_seq_len() const override { return args().max_seq_len; }
  bool attends_inside_documents() const override { return decoder::attends_inside_documents(args()); }
  std::string description() const override { return family_->description(); }

  Decoding* decoding() override { return this; }
  Tensor logits(const TokenBatch& batch) override;
  Tensor decode(const Tensor& tokens_BS, nn::KvCache& cache) override;
  nn::KvCache make_cache(int64_t batch, int64_t max_tokens) const override;

  const ModelCosts& costs() const override { return *this; }
  ModelSize size(int64_t seq_len) const override;
  int64_t head_bytes(int64_t tokens, int64_t weight_element) const override;
  int64_t key_value_width() const override;

  const HuggingFaceAdapter* hugging_face() const override { return family_->hugging_face(); }

 private:
  const Args& args() const { return family_->args(); }
  std::unique_ptr<Block> make_block(int64_t layer) const;
  void build_units();
  Parameter& head() { return output_ ? output_->weight : tok_embeddings_->weight; }
  Tensor embed(const Tensor& tokens_BS);
  Tensor rope_rows(const TokenBatch& batch);  // of the positions of this rank's tokens
  // This rank's rows of [T, D] after these blocks, before the last norm.
  Tensor run_blocks(const std::vector<int64_t>& blocks, Tensor x_tD, const TokenBatch& batch);
  Tensor head_loss(const Tensor& x_tD, const Tensor& labels_BS, double scale);

  std::shared_ptr<const Family> family_;
  // What this part of the model does not have is null.
  std::unique_ptr<nn::Embedding> tok_embeddings_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::RmsNorm> norm_;
  std::unique_ptr<nn::Linear> output_;  // null with tied embeddings
  Tensor rope_table_;
  // With context parallelism, for the last sequence length: this rank's rows, and all rows where tokens bring
  // positions.
  Tensor rope_share_, rope_sequence_;
  Device rope_device_ = at::kCPU;

  // Tied weights are used at both ends, so they stay gathered in between: they belong to the root.
  std::unique_ptr<nn::Unit> root_unit_, embedding_unit_, head_unit_;
  ops::RowExchange* exchange_ = &ops::all_rows_here();
  ops::ContextExchange* context_ = nullptr;  // null: whole sequences are here
  ExpertContext experts_;
  ExpertLoads expert_loads_;  // of the last step
  bool loss_parallel_ = true;
};

}  // namespace titanium::models::decoder
