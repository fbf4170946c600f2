#include "titanium/models/encoders/sharded_weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "titanium/tensor/parameter.h"

namespace titanium::models {
namespace {

// The weights one after the other, and this rank's part of that.
class ShardedGroup {
 public:
  ShardedGroup(const std::vector<Tensor>& weights, comm::GroupPtr ranks) : ranks_(std::move(ranks)) {
    int64_t elements = 0;
    for (const Tensor& weight : weights) {
      shapes_.emplace_back(weight.sizes().begin(), weight.sizes().end());
      elements += weight.numel();
    }
    const int64_t part = (elements + ranks_->size() - 1) / ranks_->size();
    const Tensor whole = at::zeros({part * ranks_->size()}, weights.at(0).options());
    int64_t at = 0;
    for (const Tensor& weight : weights) {
      whole.narrow(0, at, weight.numel()).copy_(weight.flatten());
      at += weight.numel();
    }
    mine_ = whole.narrow(0, part * ranks_->rank(), part).clone();
  }

  FrozenFetch fetch() const {
    const Tensor whole = at::empty({mine_.numel() * ranks_->size()}, mine_.options());
    const auto work = std::make_shared<comm::Work>(ranks_->all_gather(whole, mine_));
    return [this, whole, work] {
      (*work)->wait();
      std::vector<Tensor> weights;
      int64_t at = 0;
      for (const Shape& shape : shapes_) {
        weights.push_back(whole.narrow(0, at, volume(shape)).view(shape));
        at += volume(shape);
      }
      return weights;
    };
  }

 private:
  comm::GroupPtr ranks_;
  std::vector<Shape> shapes_;
  Tensor mine_;
};

}  // namespace

KeepFrozen keep_whole() {
  return [](std::vector<Tensor> weights) -> FrozenGroup {
    return [weights = std::move(weights)]() -> FrozenFetch { return [&weights] { return weights; }; };
  };
}

KeepFrozen keep_shards(comm::GroupPtr ranks) {
  return [ranks = std::move(ranks)](const std::vector<Tensor>& weights) -> FrozenGroup {
    const auto group = std::make_shared<const ShardedGroup>(weights, ranks);
    return [group] { return group->fetch(); };
  };
}

}  // namespace titanium::models
