#include "titanium/parallel/expert_parallel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <numeric>

#include "titanium/base/error.h"
#include "titanium/parallel/turns.h"
#include "titanium/tensor/streams.h"

namespace titanium::parallel {
namespace {

// int32 matrices on their way to the host.
class HostCopy {
 public:
  explicit HostCopy(const Tensor& x)
      : copy_(at::empty(x.sizes(), at::TensorOptions(x.scalar_type()).pinned_memory(x.is_cuda()))), fence_(x.device()) {
    copy_.copy_(x, /*non_blocking=*/true);
    fence_.record();
  }
  // The sum of each row; waits for the copy, not for what is queued after it.
  std::vector<int64_t> row_sums() {
    fence_.synchronize();
    std::vector<int64_t> sums;
    for (int64_t row = 0; row < copy_.size(0); ++row) {
      const int32_t* begin = copy_.const_data_ptr<int32_t>() + row * copy_.size(1);
      sums.push_back(std::accumulate(begin, begin + copy_.size(1), int64_t{0}));
    }
    return sums;
  }

 private:
  Tensor copy_;
  Fence fence_;
};

class GroupExpertExchange : public ops::ExpertExchange {
 public:
  explicit GroupExpertExchange(comm::GroupPtr group) : group_(std::move(group)) {}

  int64_t ranks() const override { return group_->size(); }

  ops::PendingPlan plan(const Tensor& counts_E) override {
    TI_ASSERT(counts_E.size(0) % ranks() == 0, "{} experts on {} ranks", counts_E.size(0), ranks());
    const Tensor to_nL = counts_E.view({ranks(), -1}).contiguous();
    const Tensor from_nL = at::empty_like(to_nL);
    const std::vector<int64_t> one_row(static_cast<size_t>(ranks()), 1);
    group_->all_to_all(from_nL, to_nL, one_row, one_row)->wait();
    auto to = std::make_shared<HostCopy>(to_nL), from = std::make_shared<HostCopy>(from_nL);
    return [this, to, from, from_nL] {
      turns_.pass();
      ops::RowPlan plan{.to = to->row_sums(), .from = from->row_sums(), .counts_nL = from_nL};
      plan.received = std::accumulate(plan.from.begin(), plan.from.end(), int64_t{0});
      return plan;
    };
  }

  ops::Pending send(const Tensor& rows, const ops::RowPlan& plan) override {
    return exchange(rows, plan.received, plan.from, plan.to);
  }
  ops::Pending send_back(const Tensor& rows, const ops::RowPlan& plan) override {
    const int64_t sent = std::accumulate(plan.to.begin(), plan.to.end(), int64_t{0});
    return exchange(rows, sent, plan.to, plan.from);
  }
  void run_pair(const std::function<void()>& first, const std::function<void()>& second) override {
    turns_.run(first, second);
  }

 private:
  ops::Pending exchange(const Tensor& rows, int64_t arriving, const std::vector<int64_t>& from,
                        const std::vector<int64_t>& to) {
    Tensor arrived = at::empty({arriving, rows.size(1)}, rows.options());
    std::shared_ptr<comm::PendingWork> work = group_->all_to_all(arrived, rows.contiguous(), from, to);
    return [this, arrived, work] {
      turns_.pass();
      work->wait();
      return arrived;
    };
  }

  comm::GroupPtr group_;
  Turns turns_;
};

}  // namespace

bool cuts_experts(const ParallelDims& dims) { return dims.tp > 1 && (dims.ep == 1 || dims.etp > 1); }

std::unique_ptr<ops::ExpertExchange> make_expert_exchange(const Mesh& mesh) {
  return mesh.size("ep") == 1 ? nullptr : make_expert_exchange(mesh.group("ep"));
}

std::unique_ptr<ops::ExpertExchange> make_expert_exchange(comm::GroupPtr group) {
  return std::make_unique<GroupExpertExchange>(std::move(group));
}

ops::RouterLosses router_losses(double balance, double z, const Mesh& mesh) {
  const bool own_rows = mesh.size("tp") > 1 && !cuts_experts(mesh.dims());
  ops::RouterLosses losses{.balance = balance, .z = z, .sequence_ranks = mesh.size("cp")};
  if (own_rows) losses.first_row = mesh.rank("tp");
  if (!own_rows && mesh.size("cp") == 1) return losses;
  losses.sum_over_sequences = [&mesh, own_rows](const Tensor& choices) {
    if (mesh.size("cp") > 1) mesh.group("cp")->all_reduce(choices, comm::Reduce::kSum)->wait();
    if (own_rows) mesh.group("tp")->all_reduce(choices, comm::Reduce::kSum)->wait();
  };
  return losses;
}

void sum_over_routed_tokens(const Tensor& counts, const Mesh& mesh) {
  mesh.reduce("loss", counts, comm::Reduce::kSum);
  if (!cuts_experts(mesh.dims())) mesh.reduce("tp", counts, comm::Reduce::kSum);
}

}  // namespace titanium::parallel
