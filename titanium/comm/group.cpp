#include "titanium/comm/group.h"

#include <algorithm>
#include <numeric>

#include "titanium/comm/error.h"
#include "titanium/comm/flight_recorder.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::comm {
namespace {

// What is remembered of a collective while it is under way.
struct Flight {
  const char* name;
  std::string axis;
  int world_rank;
  int64_t step;
  uint64_t sequence;

  std::string trace_name() const { return fmt::format("{} {}", name, axis); }

  // Runs a part of the collective and turns what the back end throws into CommError. Bugs (std::logic_error) pass.
  template <typename Function>
  auto run(const Function& function) const {
    try {
      return function();
    } catch (const std::logic_error&) {
      flight_recorder().finished(sequence, /*failed=*/true);
      throw;
    } catch (const c10::Error& error) {
      fail(error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  [[noreturn]] void fail(const std::string& cause) const {
    flight_recorder().finished(sequence, /*failed=*/true);
    throw CommError(fmt::format("rank {}: {} on axis {} failed in step {}: {}", world_rank, name, axis, step, cause));
  }
};

class RecordedWork : public PendingWork {
 public:
  RecordedWork(Flight flight, Work work) : flight_(std::move(flight)), work_(std::move(work)) {}

  void wait() override {
    TI_ASSERT(work_, "{} on axis {}: wait was called twice", flight_.name, flight_.axis);
    const TraceScope scope("wait for", TraceScope::is_watched() ? flight_.trace_name() : std::string());
    flight_recorder().waiting(flight_.sequence);
    flight_.run([&] { work_->wait(); });
    work_.reset();
    flight_recorder().finished(flight_.sequence, /*failed=*/false);
  }

 private:
  Flight flight_;
  Work work_;
};

void check(const Tensor& tensor) {
  TI_ASSERT(tensor.defined() && tensor.is_contiguous(), "a collective needs a contiguous tensor");
}

// The same memory without a history: what a collective writes is, on every back end, no business of autograd's.
Tensor bare(const Tensor& tensor) { return tensor.variable_data(); }

// One tensor is `parts` times the other.
void check_parts(const Tensor& whole, const Tensor& part, int parts) {
  check(whole);
  check(part);
  TI_ASSERT(whole.numel() == part.numel() * parts, "{} elements are not {} x {}", whole.numel(), parts, part.numel());
  TI_ASSERT(whole.scalar_type() == part.scalar_type() && whole.device() == part.device());
}

void check_rows(const Tensor& tensor, std::span<const int64_t> rows, int parts) {
  check(tensor);
  TI_ASSERT(tensor.dim() > 0 && static_cast<int>(rows.size()) == parts);
  const int64_t sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  TI_ASSERT(tensor.size(0) == sum, "the parts have {} rows and the tensor {}", sum, tensor.size(0));
}

}  // namespace

Group::Group(std::string axis, int rank, std::vector<int> members)
    : axis_(std::move(axis)), rank_(rank), members_(std::move(members)) {
  TI_ASSERT(rank_ >= 0 && rank_ < size(), "rank {} of {}", rank_, size());
  TI_ASSERT(std::is_sorted(members_.begin(), members_.end()));
  flight_ = flight_recorder().add_group(axis_, rank_, members_);
}

void Group::leave_records_to_nccl() { flight_->nccl_records = true; }

template <typename Start>
Work Group::recorded(const char* name, const Tensor& in, const Tensor& out, const Start& start, int peer) {
  const TraceScope scope(name, axis_);
  CollectiveRecord record{.name = name, .group = flight_, .peer = peer, .timeout = timeout()};
  const auto describe = [&](const Tensor& tensor, auto& shape) {
    if (!tensor.defined()) return;
    shape.assign(tensor.sizes().begin(), tensor.sizes().end());
    record.bytes = std::max(record.bytes, static_cast<int64_t>(tensor.nbytes()));
    record.dtype = tensor.scalar_type();
  };
  describe(in, record.input);
  describe(out, record.output);
  FlightRecorder& recorder = flight_recorder();
  const Flight flight{name, axis_, members_[rank_], recorder.step(), recorder.issue(std::move(record))};
  return std::make_unique<RecordedWork>(flight, flight.run(start));
}

Work Group::all_reduce(const Tensor& tensor, Reduce op) {
  check(tensor);
  return recorded("all_reduce", tensor, tensor, [&] { return start_all_reduce(bare(tensor), op); });
}

Work Group::all_gather(const Tensor& out, const Tensor& in) {
  check_parts(out, in, size());
  return recorded("all_gather", in, out, [&] { return start_all_gather(bare(out), bare(in)); });
}

Work Group::reduce_scatter(const Tensor& out, const Tensor& in, Reduce op) {
  check_parts(in, out, size());
  return recorded("reduce_scatter", in, out, [&] { return start_reduce_scatter(bare(out), bare(in), op); });
}

Work Group::broadcast(const Tensor& tensor, int root) {
  check(tensor);
  TI_ASSERT(root >= 0 && root < size());
  return recorded("broadcast", tensor, tensor, [&] { return start_broadcast(bare(tensor), root); });
}

Work Group::all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                       std::span<const int64_t> in_rows) {
  check_rows(out, out_rows, size());
  check_rows(in, in_rows, size());
  TI_ASSERT(out.scalar_type() == in.scalar_type() && out.device() == in.device());
  TI_ASSERT(out.sizes().slice(1) == in.sizes().slice(1), "rows of different shapes");
  return recorded("all_to_all", in, out, [&] { return start_all_to_all(bare(out), bare(in), out_rows, in_rows); });
}

Work Group::send(const Tensor& tensor, int to) {
  check(tensor);
  TI_ASSERT(to >= 0 && to < size() && to != rank_);
  return recorded("send", tensor, tensor, [&] { return start_send(bare(tensor), to); }, to);
}

Work Group::receive(const Tensor& tensor, int from) {
  check(tensor);
  TI_ASSERT(from >= 0 && from < size() && from != rank_);
  return recorded("receive", tensor, tensor, [&] { return start_receive(bare(tensor), from); }, from);
}

void Group::barrier() {
  class Barrier : public PendingWork {
   public:
    explicit Barrier(Group& group) : group_(group) {}
    void wait() override { group_.run_barrier(); }

   private:
    Group& group_;
  };
  recorded("barrier", Tensor(), Tensor(), [&] { return std::make_unique<Barrier>(*this); })->wait();
}

}  // namespace titanium::comm
