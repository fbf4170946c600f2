// Flux: a rectified flow transformer for images. Blocks with weights of their own for text and image, then blocks in
// which both are one sequence; attention is not causal. Shapes: B samples, L tokens of the text, S patches of the
// image, D hidden size.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "titanium/models/flux/blocks.h"
#include "titanium/models/flux/weight_names.h"
#include "titanium/models/image_model.h"

namespace titanium::models::flux {

class Flux : public ImageModel, public ModelCosts {
 public:
  // Throws UsageError for sizes that do not fit each other.
  explicit Flux(const Args& args);

  Tensor velocity(const ImageBatch& batch) override;
  int64_t text_width() const override { return args_.context_in_dim; }
  int64_t pooled_width() const override { return args_.vec_in_dim; }
  const AutoencoderArgs& autoencoder() const override { return args_.autoencoder; }

  void init_weights(uint64_t seed) override;
  void build_buffers(Device device) override { device_ = device; }
  // Only the whole model: it is not cut into stages.
  std::unique_ptr<Model> part(const std::vector<ModelStage>& stages) const override;
  Parameter* shared_by_ends() override { return nullptr; }
  schedule::ModelChildren children() const override;
  int64_t block_count() const override { return args_.blocks(); }
  nn::Block* block(int64_t block) override { return blocks_[static_cast<size_t>(block)].get(); }
  nn::SaveLevels levels_of(int64_t block) const override;
  std::vector<nn::Unit*> units() override;

  parallel::TensorParallelPlan tensor_parallel_plan() const override { return {}; }
  void check_tensor_parallel(int64_t degree) const override;  // there is none
  void set_row_exchange(ops::RowExchange&, bool) override {}
  void set_context_exchange(ops::ContextExchange& exchange) override { exchange_ = &exchange; }

  std::string description() const override { return describe(args_); }
  const HuggingFaceAdapter* hugging_face() const override { return &names_; }

  // Tokens are those of text and image together. Products with the modulations' weights are counted once per sample.
  const ModelCosts& costs() const override { return *this; }
  ModelSize size(int64_t seq_len) const override;
  int64_t head_bytes(int64_t tokens, int64_t weight_element) const override;
  int64_t key_value_width() const override { return 2 * args_.hidden_size; }

 private:
  struct Embedder {
    Embedder(const std::string& fqn, int64_t in, int64_t out);
    Tensor forward(const Tensor& x_BI);
    nn::Linear in_layer, out_layer;
  };

  std::vector<Embedder*> embedders();
  const BlockContext& context_of(const ImageBatch& batch);
  ops::Tensors embed(const ImageBatch& batch);

  Args args_;
  WeightNames names_;
  nn::Linear img_in_, txt_in_;
  Embedder time_in_, vector_in_;
  std::optional<Embedder> guidance_in_;
  std::vector<std::unique_ptr<Block>> blocks_;  // first the double ones
  nn::Linear final_linear_, final_modulation_;
  std::unique_ptr<nn::Unit> inputs_unit_, head_unit_;

  Device device_ = at::kCPU;
  ops::ContextExchange* exchange_ = nullptr;
  BlockContext context_{};
  std::vector<int64_t> context_sizes_;  // for which the tables of the context were made
};

}  // namespace titanium::models::flux
