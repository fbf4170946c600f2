#include "titanium/comm/nccl.h"

#include <c10/cuda/CUDAGuard.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "titanium/comm/error.h"
#include "titanium/comm/rendezvous/c10d_store.h"

namespace titanium::comm {
namespace {

class NcclWork : public PendingWork {
 public:
  NcclWork(c10::intrusive_ptr<c10d::Work> work, std::vector<Tensor> tensors,
           std::shared_ptr<const GroupContext> context)
      : work_(std::move(work)), tensors_(std::move(tensors)), context_(std::move(context)) {}

  void wait() override {
    context_->explained(-1, [&] { work_->wait(); });
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<Tensor> tensors_;  // until the current stream waits for the collective, nobody else may get their memory
  std::shared_ptr<const GroupContext> context_;
};

c10d::ReduceOp to_nccl(Reduce op) {
  switch (op) {
    case Reduce::kSum:
      return c10d::ReduceOp::SUM;
    case Reduce::kMax:
      return c10d::ReduceOp::MAX;
    case Reduce::kAvg:
      return c10d::ReduceOp::AVG;
  }
  throw std::logic_error("unknown reduction");
}

class NcclGroup : public C10dGroup {
 public:
  NcclGroup(const GroupSpec& spec, c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl)
      : C10dGroup(spec.axis, spec.rank, spec.members), context_(spec.context), nccl_(std::move(nccl)) {
    leave_records_to_nccl();
  }
  ~NcclGroup() override {
    // The peers that a clean end waits for may be gone.
    if (std::uncaught_exceptions() > 0)
      nccl_->abort();
    else
      nccl_->shutdown();
  }

  void set_timeout(std::chrono::milliseconds timeout) override { nccl_->setTimeout(timeout); }

 protected:
  std::chrono::milliseconds timeout() const override { return context_->timeout(); }
  Work start_all_reduce(const Tensor& tensor, Reduce op) override {
    std::vector<Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = to_nccl(op);
    return pending({tensor}, [&] { return nccl_->allreduce(tensors, options); });
  }
  Work start_all_gather(const Tensor& out, const Tensor& in) override {
    Tensor to = out, from = in;
    return pending({out, in}, [&] { return nccl_->_allgather_base(to, from); });
  }
  bool reduces_in_place() const override { return true; }
  Work start_reduce_scatter(const Tensor& out, const Tensor& in, Reduce op) override {
    Tensor to = out, from = in;
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_nccl(op);
    return pending({out, in}, [&] { return nccl_->_reduce_scatter_base(to, from, options); });
  }
  Work start_broadcast(const Tensor& tensor, int root) override {
    std::vector<Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return pending({tensor}, [&] { return nccl_->broadcast(tensors, options); });
  }
  Work start_all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                        std::span<const int64_t> in_rows) override {
    Tensor to = out, from = in;
    std::vector<int64_t> to_rows(out_rows.begin(), out_rows.end()), from_rows(in_rows.begin(), in_rows.end());
    return pending({out, in}, [&] { return nccl_->alltoall_base(to, from, to_rows, from_rows); });
  }
  Work start_send(const Tensor& tensor, int to) override {
    std::vector<Tensor> tensors = {tensor};
    return pending({tensor}, [&] { return nccl_->send(tensors, to, /*tag=*/0); });
  }
  Work start_receive(const Tensor& tensor, int from) override {
    std::vector<Tensor> tensors = {tensor};
    return pending({tensor}, [&] { return nccl_->recv(tensors, from, /*tag=*/0); });
  }
  void run_barrier() override {
    pending({}, [&] { return nccl_->barrier(); })->wait();
  }

 private:
  template <typename Start>
  Work pending(std::vector<Tensor> tensors, const Start& start) const {
    return std::make_unique<NcclWork>(context_->explained(-1, start), std::move(tensors), context_);
  }

  std::shared_ptr<const GroupContext> context_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
};

}  // namespace

std::string nccl_flight_dump() {
  return c10d::dump_nccl_trace(/*includeCollectives=*/true, /*includeStackTraces=*/false, /*onlyActive=*/false);
}

std::shared_ptr<C10dGroup> make_nccl_group(const GroupSpec& spec, Device device) {
  TI_ASSERT(device.is_cuda() && device.has_index());
  const c10::cuda::CUDAGuard guard(device);
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = spec.context->deadline().timeout;
  options->group_name = spec.axis;
  options->global_ranks_in_group.assign(spec.members.begin(), spec.members.end());
  try {
    const auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(spec.store->store, spec.rank,
                                                                  static_cast<int>(spec.members.size()), options);
    nccl->setGroupUid(fmt::format("{} nccl", spec.axis));  // beside a group of the host of that axis
    nccl->setGroupDesc(spec.axis);
    nccl->setBoundDeviceId(device);
    nccl->eagerConnectSingleDevice(device);
    return std::make_shared<NcclGroup>(spec, nccl);
  } catch (const std::exception& error) {
    throw CommError(fmt::format("rank {}: cannot connect the {} ranks of axis {} with NCCL: {}",
                                spec.members[spec.rank], spec.members.size(), spec.axis,
                                spec.context->explain(error, -1)));
  }
}

}  // namespace titanium::comm
