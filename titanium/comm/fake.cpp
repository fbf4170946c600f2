#include "titanium/comm/fake.h"

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/comm/group_rank.h"
#include "titanium/comm/world.h"

namespace titanium::comm {
namespace {

class FinishedWork : public PendingWork {
 public:
  void wait() override {}
};

Work finished() { return std::make_unique<FinishedWork>(); }

class FakeGroup : public Group {
 public:
  using Group::Group;

 protected:
  Work start_all_reduce(const Tensor& tensor, Reduce op) override {
    if (op == Reduce::kSum && size() > 1) tensor.mul_(size());
    return finished();
  }
  Work start_all_gather(const Tensor& out, const Tensor& in) override {
    const Tensor parts = out.view({size(), in.numel()});
    // `in` may be one of the parts: the copy onto itself is left out.
    for (int rank = 0; rank < size(); ++rank)
      if (parts[rank].data_ptr() != in.data_ptr()) parts[rank].copy_(in.view({-1}));
    return finished();
  }
  Work start_reduce_scatter(const Tensor& out, const Tensor& in, Reduce op) override {
    out.view({-1}).copy_(in.view({size(), out.numel()})[rank()]);
    return start_all_reduce(out, op);
  }
  Work start_broadcast(const Tensor&, int) override { return finished(); }
  // Rows arrive from the others as they would from this rank; what is missing for that is zero.
  Work start_all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                        std::span<const int64_t> in_rows) override {
    int64_t first = 0;
    for (int member = 0; member < rank(); ++member) first += in_rows[member];
    const Tensor own = in.narrow(0, first, in_rows[rank()]);
    int64_t row = 0;
    for (const int64_t rows : out_rows) {
      const int64_t common = std::min(rows, own.size(0));
      out.narrow(0, row, common).copy_(own.narrow(0, 0, common));
      out.narrow(0, row + common, rows - common).zero_();
      row += rows;
    }
    return finished();
  }
  Work start_send(const Tensor&, int) override { return finished(); }
  Work start_receive(const Tensor& tensor, int) override {
    tensor.zero_();
    return finished();
  }
  void run_barrier() override {}
};

class FakeWorld : public World {
 public:
  FakeWorld(int rank, int size) : rank_(rank), size_(size) { TI_ASSERT(rank >= 0 && rank < size); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  GroupPtr group(const std::string& axis, const std::vector<int>& members) override {
    return make_fake_group(axis, group_rank(*this, members), members);
  }
  GroupPtr host_group(const std::string& axis, const std::vector<int>& members) override {
    return group(axis, members);
  }
  GroupPtr patient_host_group(const std::string& axis, const std::vector<int>& members, std::chrono::milliseconds,
                              const std::string&) override {
    return group(axis, members);
  }
  void set_timeout(std::chrono::milliseconds) override {}
  void report_failure(const std::string&) override {}

 private:
  int rank_, size_;
};

}  // namespace

GroupPtr make_fake_group(const std::string& axis, int rank, const std::vector<int>& members) {
  return std::make_shared<FakeGroup>(axis, rank, members);
}

std::unique_ptr<World> make_fake_world(int rank, int size) { return std::make_unique<FakeWorld>(rank, size); }

}  // namespace titanium::comm
