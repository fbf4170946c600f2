#include "titanium/models/decoder/decoder.h"

#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/models/decoder/expert_balance.h"
#include "titanium/ops/embedding.h"
#include "titanium/ops/head_loss.h"
#include "titanium/ops/init.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/sequence_share.h"

namespace titanium::models::decoder {
namespace {

constexpr const char* kEmbedding = "tok_embeddings";
constexpr const char* kNorm = "norm";
constexpr const char* kOutput = "output";

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): as the other constructor, which keeps it.
Decoder::Decoder(std::shared_ptr<const Family> family) : Decoder(family, {whole_stage(family->args().n_layers)}) {}

Decoder::Decoder(std::shared_ptr<const Family> family, const std::vector<ModelStage>& stages)
    : family_(std::move(family)), blocks_(static_cast<size_t>(args().n_layers)) {
  const bool first = std::ranges::any_of(stages, &ModelStage::is_first);
  const bool last = std::ranges::any_of(stages, &ModelStage::is_last);
  if (first || (last && args().tied_embeddings)) {
    tok_embeddings_ = std::make_unique<nn::Embedding>(kEmbedding, args().vocab_size, args().dim);
    add(*tok_embeddings_);
  }
  for (const ModelStage& stage : stages) {
    for (const int64_t layer : stage.blocks) {
      blocks_[layer] = make_block(layer);
      add(*blocks_[layer]);
    }
  }
  if (last) {
    norm_ = std::make_unique<nn::RmsNorm>(kNorm, args().dim, args().norm_eps);
    add(*norm_);
  }
  if (last && !args().tied_embeddings) {
    output_ = std::make_unique<nn::Linear>(kOutput, args().dim, args().vocab_size);
    add(*output_);
  }
  build_units();
}

std::unique_ptr<Block> Decoder::make_block(int64_t layer) const {
  return std::make_unique<Block>(layer, args(), family_->attention(layer), family_->feed_forward(layer));
}

std::unique_ptr<Model> Decoder::part(const std::vector<ModelStage>& stages) const {
  return std::make_unique<Decoder>(family_, stages);
}

Parameter* Decoder::shared_by_ends() {
  return args().tied_embeddings && tok_embeddings_ ? &tok_embeddings_->weight : nullptr;
}

schedule::ModelChildren Decoder::children() const {
  schedule::ModelChildren children{.before = {kEmbedding}, .blocks = {}, .after = {kNorm, kOutput}};
  for (int64_t layer = 0; layer < block_count(); ++layer) children.blocks.push_back(fmt::format("layers.{}", layer));
  return children;
}

void Decoder::build_units() {
  using Parameters = std::vector<Parameter*>;
  const auto unit = [](const char* name, nn::UnitRole role, const Parameters& parameters) {
    return std::make_unique<nn::Unit>(name, role, parameters);
  };
  const auto present = [](const auto&... children) {
    Parameters parameters;
    ((children ? parameters.push_back(&children->weight) : void()), ...);
    return parameters;
  };
  const bool tied = args().tied_embeddings;
  root_unit_ = unit("root", nn::UnitRole::kRoot, tied ? present(tok_embeddings_, norm_) : Parameters{});
  embedding_unit_ = unit(kEmbedding, nn::UnitRole::kEmbedding, tied ? Parameters{} : present(tok_embeddings_));
  head_unit_ = unit("head", nn::UnitRole::kHead, tied ? Parameters{} : present(norm_, output_));
}

std::vector<nn::Unit*> Decoder::units() {
  std::vector<nn::Unit*> units = {root_unit_.get(), embedding_unit_.get()};
  for (const auto& block : blocks_) {
    if (!block) continue;
    for (nn::Unit* unit : block->units()) units.push_back(unit);
  }
  units.push_back(head_unit_.get());
  std::erase_if(units, [](const nn::Unit* unit) { return unit->parameters.empty(); });
  return units;
}

nn::SaveLevels Decoder::levels_of(int64_t block) const {
  const auto& here = blocks_[static_cast<size_t>(block)];
  return here ? here->levels(compute_dtype) : make_block(block)->levels(compute_dtype);
}

void Decoder::set_row_exchange(ops::RowExchange& exchange, bool loss_parallel) {
  exchange_ = &exchange;
  loss_parallel_ = loss_parallel;
}

void Decoder::set_context_exchange(ops::ContextExchange& exchange) {
  context_ = &exchange;
  rope_table_ = rope_table_.cpu();  // the device needs this rank's rows only
}

void Decoder::set_expert_exchange(ops::ExpertExchange& exchange, bool cut_by_rows) {
  experts_.exchange = &exchange;
  experts_.cut_by_rows = cut_by_rows;
}

void Decoder::before_update(const parallel::Mesh& mesh) {
  std::vector<ExpertLoad> loads;
  std::vector<int64_t> counted;
  for (int64_t layer = 0; layer < block_count(); ++layer) {
    const auto& block = blocks_[static_cast<size_t>(layer)];
    const auto load = block ? block->feed_forward().expert_load() : std::nullopt;
    if (!load) continue;
    loads.push_back(*load);
    counted.push_back(layer);
  }
  if (!loads.empty()) expert_loads_ = {counted, balance_experts(loads, mesh)};
}

void Decoder::init_weights(uint64_t seed) {
  constexpr double kUncut = 1e6;
  const double std = 1.0 / std::sqrt(static_cast<double>(args().dim));
  if (tok_embeddings_ && !args().tied_embeddings) ops::init_normal(tok_embeddings_->weight, seed, 1.0, kUncut);
  for (const auto& block : blocks_) {
    if (block) block->init_weights(seed, args());
  }
  if (norm_) ops::init_constant(norm_->weight, 1);
  if (output_ || shared_by_ends() != nullptr) ops::init_normal(head(), seed, std, 3 * std);
}

void Decoder::build_buffers(Device device) {
  rope_device_ = device;
  rope_table_ = family_->rope_table(device);
}

Tensor Decoder::embed(const Tensor& tokens_BS) {
  return embedding_unit_->run(tokens_BS.flatten(), [&](const Tensor& tokens_T) {
    return ops::embedding(tokens_T, tok_embeddings_->weight, compute_dtype, *exchange_);
  });
}

Tensor Decoder::rope_rows(const TokenBatch& batch) {
  const int64_t seq_len = batch.tokens_BS.size(1);
  const int64_t whole = context_ == nullptr ? seq_len : seq_len * context_->share().ranks;
  TI_CHECK(whole <= max_seq_len(), "a sequence of {} tokens is longer than the model's {} positions.", whole,
           max_seq_len());
  Tensor rows = rope_table_.narrow(0, 0, whole);
  if (batch.positions_BS.defined()) {
    if (!rope_sequence_.defined() || rope_sequence_.size(0) != whole) rope_sequence_ = rows.to(rope_device_);
    return rope_sequence_.index_select(0, batch.positions_BS.flatten()).unflatten(0, batch.positions_BS.sizes());
  }
  if (context_ == nullptr) return rows;
  if (!rope_share_.defined() || rope_share_.size(0) != seq_len) {
    rope_share_ = ops::share_of(rows, 0, context_->share()).to(rope_device_);
  }
  return rope_share_;
}

Tensor Decoder::run_blocks(const std::vector<int64_t>& blocks, Tensor x_tD, const TokenBatch& batch) {
  BlockContext context{rope_rows(batch), batch.documents, *exchange_, context_, experts_};
  context.positions_BS = batch.positions_BS;
  ops::RouterLosses& losses = context.experts.losses;
  losses.seq_len = batch.tokens_BS.size(1);
  losses.all_rows = batch.tokens_BS.numel();
  losses.first_row *= x_tD.size(0);  // of the place among the ranks that have rows of their own
  for (const int64_t i : blocks) {
    Block& block = *blocks_[static_cast<size_t>(i)];
    x_tD = block.unit().run(x_tD, [&](const Tensor& x) { return block.forward(x, context); });
  }
  return x_tD;
}

Tensor Decoder::head_loss(const Tensor& x_tD, const Tensor& labels_BS, double scale) {
  return head_unit_->run(x_tD, [&](const Tensor& x) {
    return ops::head_loss(norm_->forward(x), {head(), *exchange_, loss_parallel_}, labels_BS.flatten(), scale);
  });
}

Tensor Decoder::run_stage(const ModelStage& stage, const Tensor& x_tD, const TokenBatch& batch, const Tensor& labels_BS,
                          double scale) {
  return root_unit_->run(stage.is_first ? batch.tokens_BS : x_tD, [&](const Tensor& input) {
    const Tensor hidden_tD = run_blocks(stage.blocks, stage.is_first ? embed(input) : input, batch);
    return stage.is_last ? head_loss(hidden_tD, labels_BS, scale) : hidden_tD;
  });
}

Tensor Decoder::logits(const TokenBatch& batch) {
  const Tensor hidden_TD = run_blocks(whole_stage(block_count()).blocks, embed(batch.tokens_BS), batch);
  return ops::linear(norm_->forward(hidden_TD), head())
      .unflatten(0, {batch.tokens_BS.size(0), batch.tokens_BS.size(1)});
}

Tensor Decoder::decode(const Tensor& tokens_BS, nn::KvCache& cache) {
  const c10::AutoGradMode no_grad(false);
  const int64_t seq_len = tokens_BS.size(1);
  const BlockContext context{rope_table_.narrow(0, cache.length(), seq_len), nullptr, *exchange_, context_, experts_};
  Tensor x_TD = embed(tokens_BS);
  for (const auto& block : blocks_) x_TD = block->decode(x_TD, context, cache);
  cache.advance(seq_len);
  const Tensor last_BD = x_TD.unflatten(0, {tokens_BS.size(0), seq_len}).select(1, seq_len - 1);
  return ops::linear(norm_->forward(last_BD), head());
}

nn::KvCache Decoder::make_cache(int64_t batch, int64_t max_tokens) const {
  std::vector<nn::CacheShape> layers;
  for (const auto& block : blocks_) layers.push_back(block->attention().cache_shape());
  return {layers, batch, max_tokens, compute_dtype, rope_table_.device()};
}

}  // namespace titanium::models::decoder
