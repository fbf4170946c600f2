#include "titanium/models/llama3/model.h"

#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/ops/context_attention.h"
#include "titanium/ops/cross_entropy.h"
#include "titanium/ops/embedding.h"
#include "titanium/ops/feed_forward.h"
#include "titanium/ops/head_loss.h"
#include "titanium/ops/init.h"
#include "titanium/ops/linear.h"
#include "titanium/ops/norm_qkv_rope.h"

namespace titanium::models::llama3 {

Attention::Attention(const std::string& fqn, const Args& args)
    : wq(fqn + ".wq", args.dim, args.n_heads * args.head_dim),
      wk(fqn + ".wk", args.dim, args.n_kv_heads * args.head_dim),
      wv(fqn + ".wv", args.dim, args.n_kv_heads * args.head_dim),
      wo(fqn + ".wo", args.n_heads * args.head_dim, args.dim) {
  for (const nn::Linear* linear : {&wq, &wk, &wv, &wo}) add(*linear);
}

FeedForward::FeedForward(const std::string& fqn, const Args& args)
    : w1(fqn + ".w1", args.dim, args.ffn_hidden_dim),
      w2(fqn + ".w2", args.ffn_hidden_dim, args.dim),
      w3(fqn + ".w3", args.dim, args.ffn_hidden_dim) {
  for (const nn::Linear* linear : {&w1, &w2, &w3}) add(*linear);
}

TransformerBlock::TransformerBlock(int64_t layer, const Args& args)
    : layer_(layer),
      head_dim_(args.head_dim),
      attention_norm_(fmt::format("layers.{}.attention_norm", layer), args.dim, args.norm_eps),
      attention_(fmt::format("layers.{}.attention", layer), args),
      ffn_norm_(fmt::format("layers.{}.ffn_norm", layer), args.dim, args.norm_eps),
      feed_forward_(fmt::format("layers.{}.feed_forward", layer), args) {
  add(attention_);
  add(feed_forward_);
  add(attention_norm_);
  add(ffn_norm_);
}

ops::NormQkvRopeArgs TransformerBlock::attention_args(const Tensor& rope_table) {
  return {attention_norm_.weight, attention_norm_.eps, attention_.wq.weight, attention_.wk.weight,
          attention_.wv.weight,   head_dim_,           rope_table,           *exchange};
}

Tensor TransformerBlock::forward(const Tensor& x_tD, const Tensor& rope_table, const ops::DocumentsPtr& documents) {
  if (saves != nn::BlockSaves::kInput) return forward_once(x_tD, rope_table, documents);
  return ops::recompute([=, this](const Tensor& x) { return forward_once(x, rope_table, documents); }, x_tD);
}

Tensor TransformerBlock::forward_once(const Tensor& x_tD, const Tensor& rope_table,
                                      const ops::DocumentsPtr& documents) {
  const ops::Qkv qkv = ops::norm_qkv_rope(x_tD, attention_args(rope_table));
  const Tensor mixed_BSHE = context == nullptr
                                ? ops::attention(qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE, documents)
                                : ops::context_attention(qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE, documents, *context);
  const Tensor mixed_TD = mixed_BSHE.flatten(0, 1).flatten(1);
  return feed_forward_half(ops::linear_residual(mixed_TD, attention_.wo.weight, qkv.residual_tD, *exchange));
}

Tensor TransformerBlock::feed_forward_half(const Tensor& h_tD) {
  using enum ops::FeedForwardSaves;
  const auto kept = saves == nn::BlockSaves::kAttentionHalf ? kNothing
                    : saves == nn::BlockSaves::kGateAndUp   ? kGateAndUp
                                                            : kEverything;
  return ops::feed_forward(h_tD,
                           {ffn_norm_.weight, ffn_norm_.eps, feed_forward_.w1.weight, feed_forward_.w2.weight,
                            feed_forward_.w3.weight, *exchange},
                           kept);
}

Tensor TransformerBlock::decode(const Tensor& x_TD, const Tensor& rope_table, nn::KvCache& cache) {
  const ops::Qkv fresh = ops::norm_qkv_rope(x_TD, attention_args(rope_table));
  const auto [k_BSKE, v_BSKE] = cache.append(layer_, fresh.k_BSKE, fresh.v_BSKE);
  const Tensor mixed_BSHE = ops::attention_by_definition(fresh.q_BSHE, k_BSKE, v_BSKE, nullptr);
  const Tensor mixed_TD = mixed_BSHE.flatten(0, 1).flatten(1);
  return feed_forward_half(ops::linear_residual(mixed_TD, attention_.wo.weight, x_TD, *exchange));
}

void TransformerBlock::init_weights(uint64_t seed, int64_t n_layers, bool depth_init) {
  const double depth_std = 0.02 / std::sqrt(2.0 * static_cast<double>(depth_init ? layer_ + 1 : n_layers));
  for (nn::Linear* linear : {&attention_.wq, &attention_.wk, &attention_.wv, &feed_forward_.w1}) {
    ops::init_normal(linear->weight, seed, 0.02);
  }
  for (nn::Linear* linear : {&attention_.wo, &feed_forward_.w2, &feed_forward_.w3}) {
    ops::init_normal(linear->weight, seed, depth_std);
  }
  ops::init_constant(attention_norm_.weight, 1);
  ops::init_constant(ffn_norm_.weight, 1);
}

Llama3::Llama3(const Args& args) : Llama3(args, {whole_stage(args.n_layers)}) {}

Llama3::Llama3(const Args& args, const std::vector<ModelStage>& stages)
    : args_(args), layers_(static_cast<size_t>(args.n_layers)) {
  const bool first = std::ranges::any_of(stages, &ModelStage::is_first);
  const bool last = std::ranges::any_of(stages, &ModelStage::is_last);
  if (first || (last && args.tied_embeddings)) {
    tok_embeddings_ = std::make_unique<nn::Embedding>("tok_embeddings", args.vocab_size, args.dim);
    add(*tok_embeddings_);
  }
  for (const ModelStage& stage : stages) {
    for (const int64_t layer : stage.blocks) {
      layers_[layer] = std::make_unique<TransformerBlock>(layer, args);
      add(*layers_[layer]);
    }
  }
  if (last) {
    norm_ = std::make_unique<nn::RmsNorm>("norm", args.dim, args.norm_eps);
    add(*norm_);
  }
  if (last && !args.tied_embeddings) {
    output_ = std::make_unique<nn::Linear>("output", args.dim, args.vocab_size);
    add(*output_);
  }
  build_units();
}

void Llama3::build_units() {
  using Parameters = std::vector<Parameter*>;
  const auto unit = [](const std::string& name, nn::UnitRole role, const Parameters& parameters) {
    return std::make_unique<nn::Unit>(name, role, parameters);
  };
  const auto present = [](const auto&... children) {
    Parameters parameters;
    ((children ? parameters.push_back(&children->weight) : void()), ...);
    return parameters;
  };
  const bool tied = args_.tied_embeddings;
  root_unit_ = unit("root", nn::UnitRole::kRoot, tied ? present(tok_embeddings_, norm_) : Parameters{});
  embedding_unit_ = unit("tok_embeddings", nn::UnitRole::kEmbedding, tied ? Parameters{} : present(tok_embeddings_));
  for (size_t i = 0; i < layers_.size(); ++i) {
    block_units_.push_back(
        unit(fmt::format("layers.{}", i), nn::UnitRole::kBlock, layers_[i] ? layers_[i]->parameters() : Parameters{}));
  }
  head_unit_ = unit("head", nn::UnitRole::kHead, tied ? Parameters{} : present(norm_, output_));
}

std::vector<nn::Unit*> Llama3::units() {
  std::vector<nn::Unit*> units = {root_unit_.get(), embedding_unit_.get()};
  for (const auto& unit : block_units_) units.push_back(unit.get());
  units.push_back(head_unit_.get());
  std::erase_if(units, [](const nn::Unit* unit) { return unit->parameters.empty(); });
  return units;
}

void Llama3::set_row_exchange(ops::RowExchange& exchange, bool loss_parallel) {
  exchange_ = &exchange;
  loss_parallel_ = loss_parallel;
  for (const auto& layer : layers_) {
    if (layer) layer->exchange = &exchange;
  }
}

void Llama3::set_context_exchange(ops::ContextExchange& exchange) {
  context_ = &exchange;
  rope_device_ = rope_table_.device();
  rope_table_ = rope_table_.cpu();  // the device needs this rank's rows only
  for (const auto& layer : layers_) {
    if (layer) layer->context = &exchange;
  }
}

void Llama3::init_weights(uint64_t seed) {
  constexpr double kUncut = 1e6;
  const double std = 1.0 / std::sqrt(static_cast<double>(args_.dim));
  if (tok_embeddings_ && !args_.tied_embeddings) ops::init_normal(tok_embeddings_->weight, seed, 1.0, kUncut);
  for (const auto& layer : layers_) {
    if (layer) layer->init_weights(seed, args_.n_layers, args_.depth_init);
  }
  if (norm_) ops::init_constant(norm_->weight, 1);
  if (output_ || shared_by_ends() != nullptr) ops::init_normal(head(), seed, std, 3 * std);
}

void Llama3::build_buffers(Device device) {
  rope_table_ = ops::rope_table(args_.head_dim, args_.max_seq_len, args_.rope_theta, args_.rope_scaling, device);
}

Tensor Llama3::embed(const Tensor& tokens_BS) {
  return embedding_unit_->run(tokens_BS.flatten(), [&](const Tensor& tokens_T) {
    return ops::embedding(tokens_T, tok_embeddings_->weight, compute_dtype, *exchange_);
  });
}

Tensor Llama3::rope_rows(int64_t seq_len) {
  const int64_t whole = context_ == nullptr ? seq_len : seq_len * context_->share().ranks;
  TI_CHECK(whole <= args_.max_seq_len, "a sequence of {} tokens is longer than the model's {} positions.", whole,
           args_.max_seq_len);
  const Tensor rows = rope_table_.narrow(0, 0, whole);
  if (context_ == nullptr) return rows;
  if (!rope_share_.defined() || rope_share_.size(0) != seq_len) {
    rope_share_ = ops::share_of(rows, 0, context_->share()).to(rope_device_);
  }
  return rope_share_;
}

Tensor Llama3::run_blocks(const std::vector<int64_t>& blocks, Tensor x_tD, const TokenBatch& batch) {
  const Tensor rope_table = rope_rows(batch.tokens_BS.size(1));
  for (const int64_t i : blocks) {
    x_tD = block_units_[i]->run(x_tD,
                                [&](const Tensor& x) { return layers_[i]->forward(x, rope_table, batch.documents); });
  }
  return x_tD;
}

Tensor Llama3::hidden_states(const TokenBatch& batch) {
  return run_blocks(whole_stage(args_.n_layers).blocks, embed(batch.tokens_BS), batch);
}

Tensor Llama3::head_loss(const Tensor& x_tD, const Tensor& labels_BS, double scale) {
  return head_unit_->run(x_tD, [&](const Tensor& x) {
    return ops::head_loss(norm_->forward(x), {head(), *exchange_, loss_parallel_}, labels_BS.flatten(), scale);
  });
}

Tensor Llama3::run_stage(const ModelStage& stage, const Tensor& x_tD, const TokenBatch& batch, const Tensor& labels_BS,
                         double scale) {
  return root_unit_->run(stage.is_first ? batch.tokens_BS : x_tD, [&](const Tensor& input) {
    const Tensor hidden_tD = run_blocks(stage.blocks, stage.is_first ? embed(input) : input, batch);
    return stage.is_last ? head_loss(hidden_tD, labels_BS, scale) : hidden_tD;
  });
}

Tensor Llama3::loss(const TokenBatch& batch, const Tensor& labels_BS, double scale) {
  return run_stage(whole_stage(args_.n_layers), {}, batch, labels_BS, scale);
}

Tensor Llama3::logits(const TokenBatch& batch) {
  return ops::linear(norm_->forward(hidden_states(batch)), head())
      .unflatten(0, {batch.tokens_BS.size(0), batch.tokens_BS.size(1)});
}

Tensor Llama3::decode(const Tensor& tokens_BS, nn::KvCache& cache) {
  const c10::AutoGradMode no_grad(false);
  const int64_t seq_len = tokens_BS.size(1);
  const Tensor rope_table = rope_table_.narrow(0, cache.length(), seq_len);
  Tensor x_TD = embed(tokens_BS);
  for (const auto& layer : layers_) x_TD = layer->decode(x_TD, rope_table, cache);
  cache.advance(seq_len);
  const Tensor last_BD = x_TD.unflatten(0, {tokens_BS.size(0), seq_len}).select(1, seq_len - 1);
  return ops::linear(norm_->forward(last_BD), head());
}

nn::KvCache Llama3::make_cache(int64_t batch, int64_t max_tokens) const {
  return {args_.n_layers, batch, max_tokens, args_.n_kv_heads, args_.head_dim, compute_dtype, rope_table_.device()};
}

int64_t Llama3::saved_bytes_per_token(nn::BlockSaves saves) const {
  const int64_t element = static_cast<int64_t>(c10::elementSize(compute_dtype));
  if (saves == nn::BlockSaves::kInput) return args_.dim * element;
  // x and h with their rstd, q and the attention's output, k and v, the log-sum-exp.
  const int64_t attention = 2 * args_.dim + 2 * args_.n_heads * args_.head_dim + 2 * args_.n_kv_heads * args_.head_dim;
  const int64_t gate_and_up = saves == nn::BlockSaves::kAttentionHalf ? 0 : 2 * args_.ffn_hidden_dim;
  const bool keeps_product =
      saves == nn::BlockSaves::kEverything &&
      std::ranges::any_of(layers_, [](const auto& layer) { return layer && layer->keeps_float8_product(); });
  constexpr int64_t kFloat = 4;
  return (attention + gate_and_up) * element + (2 + args_.n_heads) * kFloat +
         (keeps_product ? args_.ffn_hidden_dim : 0);
}

int64_t Llama3::backward_bytes_per_token(nn::BlockSaves saves) const {
  const int64_t element = static_cast<int64_t>(c10::elementSize(compute_dtype));
  // In the feed-forward half: the product's gradient, in whose place the product comes; what was normalised and its
  // gradient, the gradients of the block's output and of h, and those that the attention half and the residual get.
  const int64_t temporaries = (args_.ffn_hidden_dim + 6 * args_.dim) * element;
  return temporaries + saved_bytes_per_token(nn::BlockSaves::kEverything) - saved_bytes_per_token(saves);
}

int64_t Llama3::head_bytes(int64_t tokens) const {
  if (!norm_) return 0;
  const int64_t element = static_cast<int64_t>(c10::elementSize(compute_dtype));
  const int64_t chunk = std::min(tokens, ops::cross_entropy_chunk_on_gpu(args_.vocab_size));
  return (chunk * args_.vocab_size + 3 * tokens * args_.dim) * element;  // logits; x, its norm, and the gradient of it
}

ModelSize Llama3::size(int64_t seq_len) const {
  ModelSize size;
  const Llama3 whole(args_);
  for (const Parameter* parameter : whole.parameters()) size.parameters += volume(parameter->global_shape);
  // The embedding is a look-up; the head is a matrix product even where it shares the embedding's matrix.
  const int64_t looked_up = args_.tied_embeddings ? 0 : args_.vocab_size * args_.dim;
  size.flops_per_token = 6.0 * static_cast<double>(size.parameters - looked_up) +
                         6.0 * static_cast<double>(args_.n_layers * args_.n_heads * 2 * args_.head_dim * seq_len);
  return size;
}

}  // namespace titanium::models::llama3
