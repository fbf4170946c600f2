// What the trainer, the evaluation and the generation need of a language model.
#pragma once

#include "titanium/models/hugging_face_tensor.h"
#include "titanium/nn/block_saves.h"
#include "titanium/nn/kv_cache.h"
#include "titanium/nn/module.h"
#include "titanium/nn/unit.h"
#include "titanium/ops/attention.h"
#include "titanium/ops/context_exchange.h"
#include "titanium/ops/row_exchange.h"
#include "titanium/parallel/mesh.h"
#include "titanium/parallel/tensor_parallel.h"

namespace titanium::models {

// Token ids [B, S] on the model's device, with the documents in them if the model's attention stays inside documents.
// With context parallelism S is this rank's share of the sequence.
struct TokenBatch {
  Tensor tokens_BS;
  ops::DocumentsPtr documents;
};

struct ModelSize {
  int64_t parameters = 0;
  double flops_per_token = 0;  // of a training step, as torchtitan counts them
};

// Note [Parts and stages]
// A pipeline cuts the model into stages: runs of its children in their order. A rank holds a part of the model, the
// children of one or more stages; the other children do not exist there. Names stay those of the whole model.
struct ModelStage {
  bool is_first = false;        // tokens go in
  std::vector<int64_t> blocks;  // ascending
  bool is_last = false;         // the loss comes out; hidden states otherwise
};

// All of a model with that many blocks.
ModelStage whole_stage(int64_t blocks);

class LanguageModel : public nn::Module {
 public:
  // Fills all parameters from the model's initial distribution.
  virtual void init_weights(uint64_t seed) = 0;
  // Builds tables that are not parameters (rope) on the device of the computation.
  virtual void build_buffers(Device device) = 0;

  // scale * the summed cross-entropy of labels [B, S] (ops::kIgnoreIndex does not count), fp64. See ops::head_loss.
  virtual Tensor loss(const TokenBatch& batch, const Tensor& labels_BS, double scale) = 0;
  // What one stage makes of this rank's rows of hidden states [t, D], or of the tokens: hidden states, or the loss.
  virtual Tensor run_stage(const ModelStage& stage, const Tensor& x_tD, const TokenBatch& batch,
                           const Tensor& labels_BS, double scale) = 0;
  virtual int64_t hidden_size() const = 0;
  // A model of the same sizes, without storage, that has only the children of these stages.
  virtual std::unique_ptr<LanguageModel> part(const std::vector<ModelStage>& stages) const = 0;
  // A parameter that the first and the last stage both have; null if they share nothing.
  virtual Parameter* shared_by_ends() = 0;

  // [B, S, V]; on one rank.
  virtual Tensor logits(const TokenBatch& batch) = 0;
  // Appends tokens [B, S] to what the cache holds and returns the logits of the last one, [B, V].
  virtual Tensor decode(const Tensor& tokens_BS, nn::KvCache& cache) = 0;
  virtual nn::KvCache make_cache(int64_t batch, int64_t max_tokens) const = 0;  // after build_buffers

  // The parameter at Hugging Face.
  virtual HuggingFaceTensor hugging_face_tensor(const std::string& fqn) const = 0;
  // config.json of a Hugging Face folder with this model's weights in `dtype`.
  virtual std::string hugging_face_config(Dtype dtype) const = 0;
  // Whether a checkpoint of this model may hold a tensor of that name, ours or Hugging Face's, which is no parameter: a
  // table that is computed anew, or the copy of a tied weight.
  virtual bool is_redundant(const std::string& name) const = 0;

  // Parallelism is applied from outside, through these.
  virtual std::vector<nn::Unit*> units() = 0;  // in the order of the forward; every parameter is in one of them
  virtual const parallel::TensorParallelPlan& tensor_parallel_plan() const = 0;
  // Throws UsageError if the model cannot be cut into `degree` parts.
  virtual void check_tensor_parallel(int64_t degree) const = 0;
  virtual void set_row_exchange(ops::RowExchange& exchange, bool loss_parallel) = 0;
  // From now on a batch is this rank's share of each sequence. After build_buffers.
  virtual void set_context_exchange(ops::ContextExchange& exchange) = 0;

  // Called once per step on all ranks, after the last backward and before the optimizer's update (or its last part,
  // with optimizer.early_step_in_backward), when all gradients are summed. For what a model changes by itself, such as
  // the bias that balances experts. Only queues work on the device.
  virtual void before_update(const parallel::Mesh& /*mesh*/) {}

  virtual int64_t block_count() const = 0;  // of the whole model
  virtual bool has_block(int64_t block) const = 0;
  virtual void set_block_saves(int64_t block, nn::BlockSaves saves) = 0;

  virtual bool attends_inside_documents() const = 0;
  virtual int64_t vocabulary() const = 0;
  virtual int64_t max_seq_len() const = 0;  // the longest sequence that it takes
  virtual ModelSize size(int64_t seq_len) const = 0;
  // Bytes that one block keeps per token from the forward to the backward, in the compute dtype.
  virtual int64_t saved_bytes_per_token(nn::BlockSaves saves) const = 0;
  // Bytes that the backward of one block needs per token beside what the block has kept: temporaries, and what is
  // computed once more.
  virtual int64_t backward_bytes_per_token(nn::BlockSaves saves) const = 0;
  // Bytes that the head and its loss need for that many tokens; 0 where there is no head.
  virtual int64_t head_bytes(int64_t tokens) const = 0;
  // Elements of the keys and values that one block has per token.
  virtual int64_t key_value_width() const = 0;
  virtual std::string description() const = 0;  // the arguments as JSON, for the log

  Dtype compute_dtype = at::kFloat;
};

}  // namespace titanium::models
