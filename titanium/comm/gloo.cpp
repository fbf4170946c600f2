#include "titanium/comm/gloo.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "titanium/comm/error.h"
#include "titanium/comm/reduce_parts.h"
#include "titanium/comm/rendezvous/c10d_store.h"

namespace titanium::comm {
namespace {

// Below this many bytes on all ranks together, a reduction is one exchange of everything with everybody.
constexpr int64_t kSmallReduction = 256 << 10;

// Several operations of Gloo that make one collective.
class GlooWork : public PendingWork {
 public:
  explicit GlooWork(std::shared_ptr<const GroupContext> context) : context_(std::move(context)) {}

  // `start` gives an operation with the rank `peer` of the world; -1 for one among all.
  template <typename Start>
  void add(int peer, const Start& start) {
    parts_.push_back({context_->explained(peer, start), peer});
  }
  // What remains to be done when all parts have ended; in the order of the calls.
  void then(std::function<void()> step) { steps_.push_back(std::move(step)); }

  void wait() override {
    // Said here again, because what the group was told later does not reach Gloo's sends and receives.
    const std::chrono::milliseconds timeout = context_->deadline().timeout;
    for (const auto& part : parts_) context_->explained(part.peer, [&] { part.work->wait(timeout); });
    for (const auto& step : steps_) step();
  }

 private:
  std::shared_ptr<const GroupContext> context_;
  struct Part {
    c10::intrusive_ptr<c10d::Work> work;
    int peer;
  };
  std::vector<Part> parts_;
  std::vector<std::function<void()>> steps_;
};

bool in_host_memory(const Tensor& tensor) { return tensor.is_cpu(); }

Tensor host_buffer(const Tensor& tensor) {
  if (in_host_memory(tensor)) return tensor;
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
}

// The values of `tensor` in host memory.
Tensor on_host(const Tensor& tensor) {
  const Tensor host = host_buffer(tensor);
  if (!host.is_same(tensor)) host.copy_(tensor);
  return host;
}

void copy_back(GlooWork& work, const Tensor& tensor, const Tensor& host) {
  if (!host.is_same(tensor)) work.then([=] { tensor.copy_(host); });
}

// Note [Gloo by pairs]
// Where a collective is one message to each peer, the messages are sent and received directly: from and into the
// caller's memory, by Gloo's network thread, all at once, and a peer that does not answer has a name. c10d's own
// all-gather copies twice more, and its reduce-scatter is an all-reduce of the whole, twice the traffic. The chunks of
// a reduce-scatter are added here, in the order of ranks, so that results do not depend on who was late.
class GlooGroup : public C10dGroup {
 public:
  GlooGroup(const GroupSpec& spec, c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo)
      : C10dGroup(spec.axis, spec.rank, spec.members), context_(spec.context), gloo_(std::move(gloo)) {}

  void set_timeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }

 protected:
  std::chrono::milliseconds timeout() const override { return context_->timeout(); }
  Work start_all_reduce(const Tensor& tensor, Reduce op) override;
  Work start_all_gather(const Tensor& out, const Tensor& in) override;
  Work start_reduce_scatter(const Tensor& out, const Tensor& in, Reduce op) override;
  Work start_broadcast(const Tensor& tensor, int root) override;
  Work start_all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                        std::span<const int64_t> in_rows) override;
  Work start_send(const Tensor& tensor, int to) override;
  Work start_receive(const Tensor& tensor, int from) override;
  void run_barrier() override;

 private:
  std::unique_ptr<GlooWork> new_work() const { return std::make_unique<GlooWork>(context_); }
  // sent[r] goes to rank r and received[r] comes from it; this rank's own part is a copy.
  void exchange(GlooWork& work, const std::vector<Tensor>& received, const std::vector<Tensor>& sent);
  void gather(GlooWork& work, const Tensor& parts, const Tensor& own);
  void send_part(GlooWork& work, const Tensor& part, int to, int tag);
  void receive_part(GlooWork& work, const Tensor& part, int from, int tag);

  std::shared_ptr<const GroupContext> context_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  int exchanges_ = 0;
};

std::vector<Tensor> rows_of(const Tensor& parts) {
  std::vector<Tensor> rows;
  for (int64_t row = 0; row < parts.size(0); ++row) rows.push_back(parts[row]);
  return rows;
}

std::vector<Tensor> split_rows(const Tensor& tensor, std::span<const int64_t> rows) {
  std::vector<Tensor> parts;
  int64_t first = 0;
  for (const int64_t count : rows) {
    parts.push_back(tensor.narrow(0, first, count));
    first += count;
  }
  return parts;
}

void GlooGroup::send_part(GlooWork& work, const Tensor& part, int to, int tag) {
  std::vector<Tensor> tensors = {part};
  if (part.numel() > 0) work.add(members()[to], [&] { return gloo_->send(tensors, to, tag); });
}

void GlooGroup::receive_part(GlooWork& work, const Tensor& part, int from, int tag) {
  std::vector<Tensor> tensors = {part};
  if (part.numel() > 0) work.add(members()[from], [&] { return gloo_->recv(tensors, from, tag); });
}

void GlooGroup::exchange(GlooWork& work, const std::vector<Tensor>& received, const std::vector<Tensor>& sent) {
  // Tag 0 is for `send`. Within a tag, Gloo keeps the order.
  const int tag = 1 + (exchanges_++ & 0xffffff);
  if (received[rank()].data_ptr() != sent[rank()].data_ptr())
    received[rank()].copy_(sent[rank()].view_as(received[rank()]));
  for (int distance = 1; distance < size(); ++distance)
    receive_part(work, received[(rank() - distance + size()) % size()], (rank() - distance + size()) % size(), tag);
  for (int distance = 1; distance < size(); ++distance)
    send_part(work, sent[(rank() + distance) % size()], (rank() + distance) % size(), tag);
}

void GlooGroup::gather(GlooWork& work, const Tensor& parts, const Tensor& own) {
  exchange(work, rows_of(parts), std::vector<Tensor>(size(), own));
}

Work GlooGroup::start_all_reduce(const Tensor& tensor, Reduce op) {
  auto work = new_work();
  const Tensor host = on_host(tensor);
  if (static_cast<int64_t>(host.nbytes()) * size() <= kSmallReduction) {
    const Tensor parts = at::empty({size(), host.numel()}, host.options());
    gather(*work, parts, host.view({-1}));
    work->then([=] { reduce_parts(host, rows_of(parts), op); });
  } else {
    std::vector<Tensor> tensors = {host};
    c10d::AllreduceOptions options;
    options.reduceOp = op == Reduce::kMax ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    work->add(-1, [&] { return gloo_->allreduce(tensors, options); });
    if (op == Reduce::kAvg) work->then([host, size = size()] { average_sum(host, size); });
  }
  copy_back(*work, tensor, host);
  return work;
}

Work GlooGroup::start_all_gather(const Tensor& out, const Tensor& in) {
  auto work = new_work();
  const Tensor host = host_buffer(out);
  gather(*work, host.view({size(), in.numel()}), on_host(in).view({-1}));
  copy_back(*work, out, host);
  return work;
}

Work GlooGroup::start_reduce_scatter(const Tensor& out, const Tensor& in, Reduce op) {
  auto work = new_work();
  const Tensor chunks = on_host(in).view({size(), out.numel()}), host = host_buffer(out);
  std::vector<Tensor> received = rows_of(at::empty_like(chunks));
  received[rank()] = chunks[rank()];
  exchange(*work, received, rows_of(chunks));
  work->then([=] { reduce_parts(host, received, op); });
  copy_back(*work, out, host);
  return work;
}

Work GlooGroup::start_broadcast(const Tensor& tensor, int root) {
  auto work = new_work();
  const Tensor host = root == rank() ? on_host(tensor) : host_buffer(tensor);
  if (host.numel() > 0) {
    std::vector<Tensor> bytes = {host.view({-1}).view(at::kByte)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    work->add(-1, [&] { return gloo_->broadcast(bytes, options); });
  }
  if (root != rank()) copy_back(*work, tensor, host);
  return work;
}

Work GlooGroup::start_all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                                 std::span<const int64_t> in_rows) {
  auto work = new_work();
  const Tensor host = host_buffer(out);
  exchange(*work, split_rows(host, out_rows), split_rows(on_host(in), in_rows));
  copy_back(*work, out, host);
  return work;
}

Work GlooGroup::start_send(const Tensor& tensor, int to) {
  auto work = new_work();
  send_part(*work, on_host(tensor), to, 0);
  return work;
}

Work GlooGroup::start_receive(const Tensor& tensor, int from) {
  auto work = new_work();
  const Tensor host = host_buffer(tensor);
  receive_part(*work, host, from, 0);
  copy_back(*work, tensor, host);
  return work;
}

void GlooGroup::run_barrier() {
  auto work = new_work();
  gather(*work, at::zeros({size(), 1}, at::kByte), at::zeros({1}, at::kByte));
  work->wait();
}

}  // namespace

struct GlooNetwork::Devices {
  std::vector<std::shared_ptr<::gloo::transport::Device>> all;
};

GlooNetwork::GlooNetwork(const std::string& address) : devices_(std::make_unique<Devices>()) {
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  try {
    if (address.empty() || (interfaces != nullptr && *interfaces != '\0')) {
      devices_->all = c10d::ProcessGroupGloo::Options::create_default()->devices;
    } else {
      devices_->all = {c10d::ProcessGroupGloo::createDeviceForHostname(address, c10d::getDefaultGlooLazyInit())};
    }
  } catch (const std::exception& error) {
    throw CommError(fmt::format("Gloo finds no network interface (GLOO_SOCKET_IFNAME is {}): {}",
                                interfaces ? interfaces : "not set", message_of(error)));
  }
}

GlooNetwork::~GlooNetwork() = default;

std::string GlooNetwork::description() const {
  std::string text;
  for (const auto& device : devices_->all) text += (text.empty() ? "" : "; ") + device->str();
  return text;
}

std::shared_ptr<C10dGroup> GlooNetwork::make_group(const GroupSpec& spec) const {
  const Deadline deadline = spec.context->deadline();
  const auto options = c10d::ProcessGroupGloo::Options::create(deadline.timeout);
  options->devices = devices_->all;
  try {
    return std::make_shared<GlooGroup>(
        spec, c10::make_intrusive<c10d::ProcessGroupGloo>(spec.store->store, spec.rank,
                                                          static_cast<int>(spec.members.size()), options));
  } catch (const std::exception& error) {
    throw CommError(fmt::format("rank {}: cannot connect the {} ranks of axis {}: {}", spec.members[spec.rank],
                                spec.members.size(), spec.axis, spec.context->explain(error, -1)));
  }
}

}  // namespace titanium::comm
