#include "titanium/parallel/context_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <ranges>

#include "titanium/base/error.h"
#include "titanium/ops/attention/key_value_bundle.h"

namespace titanium::parallel {
namespace {

using ops::KeyValuePart;
using ops::SequenceShare;

// All ranks in one bundle, received where it lies.
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
    if (gradient_dtype) gradient_options_ = kv.options().dtype(gradient_dtype);
    for (int64_t slot = 0; slot < share.chunks_per_rank(); ++slot) {
      const Tensor stretch = stretch_of(all_, slot);
      // With one sequence the memory of ranks one after the other is the sequence.
      const Tensor gathered = batch_ == 1 ? stretch : at::empty(by_rank(stretch).sizes(), kv.options());
      arriving_.push_back({gathered, group_.all_gather(gathered, chunk_of(kv, slot).contiguous())});
    }
  }

  std::optional<KeyValuePart> next() override {
    if (arriving_.empty()) return std::nullopt;
    KeyValuePart part{all_, ops::chunks_of_bundle(share_, ops::ranks_of_bundle(share_, share_.ranks, 0))};
    for (size_t slot = 0; slot < arriving_.size(); ++slot) {
      arriving_[slot].work->wait();
      if (batch_ > 1) by_rank(stretch_of(all_, slot)).copy_(arriving_[slot].tensor);
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
    for (const Travelling& chunk : std::views::reverse(returning_)) {
      chunk.work->wait();
      chunks.push_back(chunk.tensor);
    }
    return at::cat(chunks, 1);
  }

 private:
  struct Travelling {
    Tensor tensor;
    comm::Work work;
  };

  // Slot 0 is the last chunk of every rank.
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

// Note [Bundles in a ring]. The bundle of step i + 1 arrives during step i; so do the gradients of this bundle that the
// ranks before have added up, to which this rank's are added. When a bundle's gradients are back at the rank that it
// began with, each part of them goes on to the rank before, and its own is added, until it is home.
class RotatingParts : public ops::KeyValueParts {
 public:
  RotatingParts(comm::Group& group, const SequenceShare& share, const Tensor& kv, std::optional<Dtype> gradient_dtype,
                int64_t width)
      : group_(group), share_(share), gradient_dtype_(gradient_dtype), width_(width), kv_(kv) {
    if (width_ > 1) next_kv_ = pass_on(kv, 1);
  }

  std::optional<KeyValuePart> next() override {
    if (step_ + 1 == steps()) return std::nullopt;
    ++step_;
    kv_ = step_ > 0 ? arrival(next_kv_) : first_bundle();
    if (step_ + 1 < steps()) next_kv_ = pass_on(kv_, width_);
    if (step_ > 0 && gradient_dtype_) earlier_grads_ = pass_on(grads_, width_);
    return KeyValuePart{kv_, ops::chunks_of_bundle(share_, ops::ranks_of_bundle(share_, width_, step_))};
  }

  void give_back(const Tensor& grad) override {
    if (step_ == 0) {
      grads_ = grad.defined() ? grad : at::zeros(kv_.sizes(), kv_.options().dtype(gradient_dtype_));
      return;
    }
    grads_ = arrival(earlier_grads_);
    if (grad.defined()) grads_.add_(grad);
  }

  Tensor collect() override {
    if (steps() > 1) {
      Travelling home = pass_on(grads_, width_);
      grads_ = arrival(home);
    }
    Tensor sum = grads_of_rank_before(width_ - 1);
    for (int64_t distance = width_ - 2; distance >= 0; --distance) {
      Travelling back = pass_on(sum, -1);
      sum = arrival(back).add_(grads_of_rank_before(distance));
    }
    return sum;
  }

 private:
  struct Travelling {
    Tensor tensor;
    comm::Work work;
  };

  int64_t steps() const { return share_.ranks / width_; }
  int64_t neighbour(int64_t distance) const { return (share_.rank + distance + share_.ranks) % share_.ranks; }

  Tensor first_bundle() {
    std::vector<Tensor> parts = {kv_};
    for (int64_t i = 1; i < width_; ++i) {
      parts.push_back(arrival(next_kv_));
      if (i + 1 < width_) next_kv_ = pass_on(parts.back(), 1);
    }
    return ops::make_bundle(share_, ops::ranks_of_bundle(share_, width_, 0), parts).kv_BTW;
  }

  Tensor grads_of_rank_before(int64_t distance) const {
    return part_of_bundle(share_, ops::ranks_of_bundle(share_, width_, 0), grads_, neighbour(-distance));
  }

  Travelling pass_on(const Tensor& mine, int64_t distance) {
    const Tensor theirs = at::empty_like(mine);
    std::vector<int64_t> sent(share_.ranks, 0), received(share_.ranks, 0);
    sent[neighbour(distance)] = mine.numel();
    received[neighbour(-distance)] = mine.numel();
    return {theirs, group_.all_to_all(theirs.view({-1}), mine.view({-1}), received, sent)};
  }

  static Tensor arrival(Travelling& travelling) {
    travelling.work->wait();
    return std::move(travelling.tensor);
  }

  comm::Group& group_;
  SequenceShare share_;
  std::optional<Dtype> gradient_dtype_;
  int64_t width_;
  int64_t step_ = -1;
  Tensor kv_, grads_;  // of this step's bundle
  Travelling next_kv_, earlier_grads_;
};

class GroupContextExchange : public ops::ContextExchange {
 public:
  GroupContextExchange(comm::GroupPtr group, const SequenceShare& share, RotateMethod method, int64_t keys_at_once)
      : group_(std::move(group)), share_(share), method_(method), keys_at_once_(keys_at_once) {
    TI_ASSERT(group_->size() == share_.ranks && group_->rank() == share_.rank);
  }

  const SequenceShare& share() const override { return share_; }

  std::unique_ptr<ops::KeyValueParts> bring(const Tensor& kv, std::optional<Dtype> gradient_dtype) override {
    if (method_ == RotateMethod::kAllGather)
      return std::make_unique<GatheredParts>(*group_, share_, kv, gradient_dtype);
    const int64_t width = ops::bundle_width(share_.ranks, kv.size(1), keys_at_once_);
    return std::make_unique<RotatingParts>(*group_, share_, kv, gradient_dtype, width);
  }

 private:
  comm::GroupPtr group_;
  SequenceShare share_;
  RotateMethod method_;
  int64_t keys_at_once_;
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
                                                            RotateMethod method, int64_t keys_at_once) {
  return std::make_unique<GroupContextExchange>(std::move(group), share, method, keys_at_once);
}

ExchangeBuffers exchange_buffers(const SequenceShare& share, RotateMethod method, const SequenceSize& size) {
  const int64_t part = size.batch * size.tokens * size.width;
  if (share.ranks == 1) return {};
  if (method == RotateMethod::kAllGather) {
    const int64_t copies = size.batch > 1 ? 2 : 1;  // several sequences are put in order before and after they travel
    return {copies * share.ranks * part, copies * share.ranks * part};
  }
  // The bundle of this step and the next; this step's gradients, those that arrive and those that leave.
  const int64_t bundle = ops::bundle_width(share.ranks, size.tokens) * part;
  return {2 * bundle, 3 * bundle};
}

}  // namespace titanium::parallel
