// The two halves of a decoder's block, which a family gives. What a token meets on its way through a block:
// h = x + attention(norm(x)), then h + feed_forward(norm(h)).
// Shapes: B batch, S sequence, T = B*S tokens, t this rank's rows of them, D model dim.
#pragma once

#include "titanium/nn/block.h"
#include "titanium/nn/kv_cache.h"
#include "titanium/nn/layers.h"
#include "titanium/nn/unit.h"
#include "titanium/ops/attention/attention.h"
#include "titanium/ops/attention/context_exchange.h"
#include "titanium/ops/experts/mixture_of_experts.h"
#include "titanium/ops/row_exchange.h"
#include "titanium/parallel/tensor_parallel.h"

namespace titanium::models::decoder {

// How the experts of all layers are spread over ranks.
struct ExpertContext {
  ops::ExpertExchange* exchange = &ops::all_experts_here();
  bool cut_by_rows = false;    // each expert is cut over the ranks of the exchange of rows
  bool force_balance = false;  // tokens are dealt to experts in turn
  ops::RouterLosses losses = {};
};

// What a block gets beside the hidden states; the same for all blocks.
struct BlockContext {
  Tensor rope_table;  // rows of the positions of this rank's tokens: Note [Rows of the rope table]
  ops::DocumentsPtr documents;
  ops::RowExchange& rows;
  ops::ContextExchange* sequence = nullptr;  // null: whole sequences are here
  ExpertContext experts = {};
  std::shared_ptr<ops::KeptRouting> kept_routing = nullptr;  // set while the whole block is recomputed
  Tensor positions_BS = {};                                  // as in TokenBatch
};

// The initial distribution. Projections back to the hidden states have a smaller deviation, which depends on the depth.
struct InitialWeights {
  uint64_t seed = 0;
  double residual_std = 0.02;
};

// A size that tensor parallelism cuts, in words: {"key/value heads", 8}.
struct CutSize {
  const char* what;
  int64_t count;
};

class Half : public nn::Module {
 public:
  virtual void init_weights(const InitialWeights& init) = 0;
  // How its children are cut. Patterns live as long as the program.
  virtual parallel::TensorParallelPlan tensor_parallel_plan() const = 0;
  virtual std::vector<CutSize> cut_sizes() const = 0;
  // Elements of weights that one token is multiplied with: by default those of all its parameters.
  virtual int64_t multiplied_elements() const;
  // Units of its own, inside that of the block, in the order of the forward. The block's unit has the other parameters.
  virtual std::vector<nn::Unit*> units() { return {}; }
};

class Attention : public Half {
 public:
  // x + attention(norm(x)).
  virtual Tensor forward(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context) = 0;
  // The same for new tokens after those in the cache, which takes them in as those of `layer`.
  virtual Tensor decode(const Tensor& x_TD, nn::RmsNorm& norm, const BlockContext& context, int64_t layer,
                        nn::KvCache& cache) = 0;
  // What decoding keeps of a token.
  virtual nn::CacheShape cache_shape() const = 0;
  // Columns of the keys and values of a token, of all heads together: what context parallelism exchanges.
  virtual int64_t key_value_width() const = 0;
  // Bytes that it keeps per token from the forward to the backward, beside x and the norm's.
  virtual int64_t kept_bytes(Dtype compute) const = 0;
  // Multiplications of scores and values per token, forward only.
  virtual int64_t score_multiplications(int64_t seq_len) const = 0;
};

// What balances the experts of a layer: tokens that went to each of them in this step, on this rank, and the bias.
struct ExpertLoad {
  nn::Buffer& bias;    // fp32 [E]
  nn::Buffer& tokens;  // int64 [E]
  double coefficient;
};

class FeedForward : public Half {
 public:
  // h + feed_forward(norm(h)), keeping what `level` says, of levels().
  virtual Tensor forward(const Tensor& h_tD, nn::RmsNorm& norm, const BlockContext& context, size_t level) = 0;
  // What it can keep, beside h and the norm's; at the last level it keeps nothing.
  virtual nn::SaveLevels levels(Dtype compute) const = 0;
  // How many times their share of rows the experts here get at most: see nn/block.h.
  virtual double largest_load() const { return 1; }
  // nullopt where there are no experts to balance.
  virtual std::optional<ExpertLoad> expert_load() { return std::nullopt; }
};

}  // namespace titanium::models::decoder
