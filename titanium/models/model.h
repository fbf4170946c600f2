// What training and the layouts need of any model. What it reads is not said here: a kind of model that reads texts is
// in models/language_model.h, and the task that a model is trained on (train/task/task.h) knows its kind. What else a
// model can do, it gives as further interfaces: its Hugging Face adapter, its costs.
#pragma once

#include "titanium/models/hugging_face_adapter.h"
#include "titanium/models/model_costs.h"
#include "titanium/nn/block.h"
#include "titanium/nn/unit.h"
#include "titanium/ops/attention/context_exchange.h"
#include "titanium/ops/experts/expert_exchange.h"
#include "titanium/ops/experts/router_losses.h"
#include "titanium/ops/row_exchange.h"
#include "titanium/parallel/mesh.h"
#include "titanium/parallel/tensor_parallel.h"
#include "titanium/schedule/stage_split.h"

namespace titanium::models {

// Note [Parts and stages]
// A pipeline cuts the model into stages: runs of its children in their order. A rank holds a part of the model, the
// children of one or more stages; the other children do not exist there. Names stay those of the whole model.
struct ModelStage {
  bool is_first = false;        // what the model reads goes in
  std::vector<int64_t> blocks;  // ascending
  bool is_last = false;         // the loss comes out; hidden states otherwise
};

// All of a model with that many blocks.
ModelStage whole_stage(int64_t blocks);
// The stage that is made of these children. Throws UsageError if it has some, but not all, of those after the blocks.
ModelStage stage_of(const schedule::ModelChildren& children, const std::vector<std::string>& names);

// Blocks whose experts are counted, and int64 [blocks, experts]; undefined if there are none.
struct ExpertLoads {
  std::vector<int64_t> blocks;
  Tensor tokens_LE;
};

class Model : public nn::Module {
 public:
  // Fills all parameters from the model's initial distribution.
  virtual void init_weights(uint64_t seed) = 0;
  // Builds tables that are not parameters (rope) on the device of the computation.
  virtual void build_buffers(Device device) = 0;

  // A model of the same kind and sizes, without storage, that has only the children of these stages.
  virtual std::unique_ptr<Model> part(const std::vector<ModelStage>& stages) const = 0;
  std::unique_ptr<Model> whole() const { return part({whole_stage(block_count())}); }
  // A parameter that the first and the last stage both have; null if they share nothing.
  virtual Parameter* shared_by_ends() = 0;

  // The children of the whole model, in the order in which it runs.
  virtual schedule::ModelChildren children() const = 0;
  virtual int64_t block_count() const = 0;                    // of the whole model
  virtual nn::Block* block(int64_t block) = 0;                // null: not in this part
  virtual nn::SaveLevels levels_of(int64_t block) const = 0;  // also of one that is not in this part
  virtual std::vector<nn::Unit*> units() = 0;  // in the order of the forward; every parameter is in one of them

  virtual parallel::TensorParallelPlan tensor_parallel_plan() const = 0;
  // Throws UsageError if the model cannot be cut into `degree` parts.
  virtual void check_tensor_parallel(int64_t degree) const = 0;
  virtual void set_row_exchange(ops::RowExchange& exchange, bool loss_parallel) = 0;
  // From now on a batch is this rank's share of each sequence. After build_buffers.
  virtual void set_context_exchange(ops::ContextExchange& exchange) = 0;

  // For a model with experts: whose rows travel to which rank, and whether each expert is cut over the ranks of the
  // exchange of rows. One without experts has no use for it.
  virtual void set_expert_exchange(ops::ExpertExchange& /*exchange*/, bool /*cut_by_rows*/) {}
  virtual void force_expert_balance() {}  // from now on tokens are dealt to experts in turn: for benchmarks
  // Losses of routers: their factors, and how sequences are spread over ranks. The sizes of a batch are filled in
  // later.
  virtual void set_router_losses(const ops::RouterLosses& /*losses*/) {}
  // The tokens that all experts of this part have had in the last step, on all ranks together.
  virtual ExpertLoads expert_loads() const { return {}; }

  // Called once per step on all ranks, after the last backward and before the optimizer's update (or its last part,
  // with optimizer.early_step_in_backward), when all gradients are summed. For what a model changes by itself, such as
  // the bias that balances experts. Only queues work on the device.
  virtual void before_update(const parallel::Mesh& /*mesh*/) {}

  virtual std::string description() const = 0;  // the arguments as JSON, for the log

  virtual const ModelCosts& costs() const = 0;
  virtual const HuggingFaceAdapter* hugging_face() const { return nullptr; }  // null: it is not there

  Dtype compute_dtype = at::kFloat;
};

// The adapter of a model that must have one. Throws UsageError that says what the model cannot do.
const HuggingFaceAdapter& hugging_face_of(const Model& model);

}  // namespace titanium::models
