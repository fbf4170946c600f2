#include "titanium/parallel/context_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

using ops::KeyValuePart;
using ops::SequenceShare;

// Note [One stretch of visible chunks]
// The gathered chunks lie with all tails first, then all heads, each in order of ranks. Tails descend (rank p has chunk
// 2n-1-p) and heads ascend, so what a tail sees is one stretch: the tails of higher ranks and all heads. What a head
// sees is one as well: the heads of lower ranks. So attention is one call per chunk of queries.
class GatheredParts : public ops::KeyValueParts {
 public:
  GatheredParts(comm::Group& group, const SequenceShare& share, const Tensor& kv, std::optional<Dtype> gradient_dtype)
      : group_(group),
        share_(share),
        batch_(kv.size(0)),
        length_(kv.size(1) / share.chunks_per_rank()),
        shape_(kv.sizes().vec()) {
    shape_[1] *= share.ranks;
    all_ = at::empty(shape_, kv.options());
    if (gradient_dtype) gradient_options_ = kv.options().dtype(*gradient_dtype);
    for (int64_t slot = 0; slot < share.chunks_per_rank(); ++slot) {
      const Tensor stretch = stretch_of(all_, slot);
      // With one sequence the memory of ranks one after the other is the sequence.
      const Tensor gathered = batch_ == 1 ? stretch : at::empty(by_rank(stretch).sizes(), kv.options());
      arriving_.push_back({gathered, group_.all_gather(gathered, chunk_of(kv, slot).contiguous())});
    }
  }

  std::optional<KeyValuePart> next() override {
    if (arriving_.empty()) return std::nullopt;
    KeyValuePart part{all_, {}};
    for (size_t slot = 0; slot < arriving_.size(); ++slot) {
      arriving_[slot].work->wait();
      if (batch_ > 1) by_rank(stretch_of(all_, slot)).copy_(arriving_[slot].tensor);
      for (int64_t rank = 0; rank < share_.ranks; ++rank) part.chunks.push_back(chunk_index(rank, slot));
    }
    arriving_.clear();
    all_ = Tensor();
    return part;
  }

  void give_back(const Tensor& grad) override {
    const Tensor all = grad.defined() ? grad : at::zeros(shape_, gradient_options_);
    for (int64_t slot = 0; slot < share_.chunks_per_rank(); ++slot) {
      const Tensor sent = by_rank(stretch_of(all, slot)).contiguous();
      const Tensor own = at::empty(sent.sizes().slice(1), sent.options());
      returning_.push_back({own, group_.reduce_scatter(own, sent, comm::Reduce::kSum)});
    }
  }

  Tensor collect() override {
    std::vector<Tensor> chunks;  // ascending
    for (auto chunk = returning_.rbegin(); chunk != returning_.rend(); ++chunk) {
      chunk->work->wait();
      chunks.push_back(chunk->tensor);
    }
    return at::cat(chunks, 1);
  }

 private:
  struct Travelling {
    Tensor tensor;
    comm::Work work;
  };

  // Slot 0 is the last chunk of every rank.
  int64_t chunk_index(int64_t rank, int64_t slot) const {
    return ops::chunks_of(share_, rank)[share_.chunks_per_rank() - 1 - slot];
  }
  Tensor chunk_of(const Tensor& own, int64_t slot) const {
    return own.narrow(1, (share_.chunks_per_rank() - 1 - slot) * length_, length_);
  }
  Tensor stretch_of(const Tensor& all, int64_t slot) const {
    return all.narrow(1, slot * share_.ranks * length_, share_.ranks * length_);
  }
  // [B, n * c, ...] -> [n, B, c, ...]
  Tensor by_rank(const Tensor& stretch) const { return stretch.unflatten(1, {share_.ranks, length_}).transpose(0, 1); }

  comm::Group& group_;
  SequenceShare share_;
  int64_t batch_, length_;
  Shape shape_;  // of all
  at::TensorOptions gradient_options_;
  Tensor all_;
  std::vector<Travelling> arriving_, returning_;
};

// In step i this rank has the part of the i-th rank before it. The part of step i + 1 arrives meanwhile; so do the
// gradients of this part that the ranks before have added up, to which this rank's are added.
class RotatingParts : public ops::KeyValueParts {
 public:
  RotatingParts(comm::Group& group, const SequenceShare& share, const Tensor& kv, std::optional<Dtype> gradient_dtype)
      : group_(group), share_(share), gradient_dtype_(gradient_dtype), kv_(kv) {}

  std::optional<KeyValuePart> next() override {
    if (step_ + 1 == share_.ranks) return std::nullopt;
    ++step_;
    if (step_ > 0) kv_ = arrival(next_kv_);
    if (step_ + 1 < share_.ranks) next_kv_ = pass_on(kv_);
    if (step_ > 0 && gradient_dtype_) earlier_grads_ = pass_on(grads_);
    return KeyValuePart{kv_, ops::chunks_of(share_, (share_.rank - step_ + share_.ranks) % share_.ranks)};
  }

  void give_back(const Tensor& grad) override {
    if (step_ == 0) {
      grads_ = grad.defined() ? grad : at::zeros(kv_.sizes(), kv_.options().dtype(*gradient_dtype_));
      return;
    }
    grads_ = arrival(earlier_grads_);
    if (grad.defined()) grads_.add_(grad);
  }

  Tensor collect() override {
    if (share_.ranks == 1) return grads_;
    Travelling home = pass_on(grads_);
    return arrival(home);
  }

 private:
  struct Travelling {
    Tensor tensor;
    comm::Work work;
  };

  Travelling pass_on(const Tensor& mine) {
    const Tensor theirs = at::empty_like(mine);
    std::vector<int64_t> sent(share_.ranks, 0), received(share_.ranks, 0);
    sent[(share_.rank + 1) % share_.ranks] = mine.numel();
    received[(share_.rank - 1 + share_.ranks) % share_.ranks] = mine.numel();
    return {theirs, group_.all_to_all(theirs.view({-1}), mine.view({-1}), received, sent)};
  }

  static Tensor arrival(Travelling& travelling) {
    travelling.work->wait();
    return std::move(travelling.tensor);
  }

  comm::Group& group_;
  SequenceShare share_;
  std::optional<Dtype> gradient_dtype_;
  int64_t step_ = -1;
  Tensor kv_, grads_;  // of this step's part
  Travelling next_kv_, earlier_grads_;
};

class GroupContextExchange : public ops::ContextExchange {
 public:
  GroupContextExchange(comm::GroupPtr group, const SequenceShare& share, RotateMethod method)
      : group_(std::move(group)), share_(share), method_(method) {
    TI_ASSERT(group_->size() == share_.ranks && group_->rank() == share_.rank);
  }

  const SequenceShare& share() const override { return share_; }

  std::unique_ptr<ops::KeyValueParts> bring(const Tensor& kv, std::optional<Dtype> gradient_dtype) override {
    if (method_ == RotateMethod::kAllGather)
      return std::make_unique<GatheredParts>(*group_, share_, kv, gradient_dtype);
    return std::make_unique<RotatingParts>(*group_, share_, kv, gradient_dtype);
  }

 private:
  comm::GroupPtr group_;
  SequenceShare share_;
  RotateMethod method_;
};

}  // namespace

RotateMethod rotate_method(const config::Parallelism& options) {
  return options.context_parallel_rotate_method == "allgather" ? RotateMethod::kAllGather : RotateMethod::kAllToAll;
}

SequenceShare sequence_share(const config::Parallelism& options, const ParallelDims& dims, int rank) {
  if (dims.cp == 1) return {};
  return {.rank = axis_rank(dims, "cp", rank),
          .ranks = dims.cp,
          .head_and_tail = options.context_parallel_load_balancer == "headtail"};
}

std::unique_ptr<ops::ContextExchange> make_context_exchange(comm::GroupPtr group, const SequenceShare& share,
                                                            RotateMethod method) {
  return std::make_unique<GroupContextExchange>(std::move(group), share, method);
}

ExchangeBuffers exchange_buffers(const SequenceShare& share, RotateMethod method, int64_t batch, int64_t elements) {
  if (share.ranks == 1) return {};
  if (method == RotateMethod::kAllGather) {
    const int64_t copies = batch > 1 ? 2 : 1;  // several sequences are put in order before and after they travel
    return {copies * share.ranks * batch * elements, copies * share.ranks * batch * elements};
  }
  // The part of this step and the next; this step's gradients, those that arrive and those that leave.
  return {2 * batch * elements, 3 * batch * elements};
}

}  // namespace titanium::parallel
