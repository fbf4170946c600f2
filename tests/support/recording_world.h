// A world whose groups count what is started and waited for, over another world that does the work.
#pragma once

#include "titanium/comm/world.h"

namespace titanium::test {

// Collectives of all groups of one rank.
struct CollectiveCounts {
  int64_t started = 0;
  int64_t waited = 0;
};

class RecordingWorld : public comm::World {
 public:
  // Both outlive it.
  RecordingWorld(comm::World& inner, CollectiveCounts& counts) : inner_(inner), counts_(counts) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  comm::GroupPtr group(const std::string& axis, const std::vector<int>& members) override {
    return std::make_shared<Group>(inner_.group(axis, members), counts_);
  }
  comm::GroupPtr host_group(const std::string& axis, const std::vector<int>& members) override {
    return std::make_shared<Group>(inner_.host_group(axis, members), counts_);
  }
  comm::GroupPtr patient_host_group(const std::string& axis, const std::vector<int>& members,
                                    std::chrono::milliseconds timeout, const std::string& option) override {
    return std::make_shared<Group>(inner_.patient_host_group(axis, members, timeout, option), counts_);
  }
  void set_timeout(std::chrono::milliseconds timeout) override { inner_.set_timeout(timeout); }
  void report_failure(const std::string& reason) override { inner_.report_failure(reason); }

 private:
  class Work : public comm::PendingWork {
   public:
    Work(comm::Work inner, CollectiveCounts& counts) : inner_(std::move(inner)), counts_(counts) { ++counts_.started; }
    void wait() override {
      inner_->wait();
      ++counts_.waited;
    }

   private:
    comm::Work inner_;
    CollectiveCounts& counts_;
  };

  class Group : public comm::Group {
   public:
    Group(comm::GroupPtr inner, CollectiveCounts& counts)
        : comm::Group(inner->axis(), inner->rank(), inner->members()), inner_(std::move(inner)), counts_(counts) {}

   protected:
    using Rows = std::span<const int64_t>;
    comm::Work start_all_reduce(const Tensor& x, comm::Reduce op) override { return count(inner_->all_reduce(x, op)); }
    comm::Work start_all_gather(const Tensor& out, const Tensor& in) override {
      return count(inner_->all_gather(out, in));
    }
    comm::Work start_reduce_scatter(const Tensor& out, const Tensor& in, comm::Reduce op) override {
      return count(inner_->reduce_scatter(out, in, op));
    }
    comm::Work start_broadcast(const Tensor& x, int root) override { return count(inner_->broadcast(x, root)); }
    comm::Work start_all_to_all(const Tensor& out, const Tensor& in, Rows out_rows, Rows in_rows) override {
      return count(inner_->all_to_all(out, in, out_rows, in_rows));
    }
    comm::Work start_send(const Tensor& x, int to) override { return count(inner_->send(x, to)); }
    comm::Work start_receive(const Tensor& x, int from) override { return count(inner_->receive(x, from)); }
    void run_barrier() override { inner_->barrier(); }

   private:
    comm::Work count(comm::Work work) { return std::make_unique<Work>(std::move(work), counts_); }

    comm::GroupPtr inner_;
    CollectiveCounts& counts_;
  };

  comm::World& inner_;
  CollectiveCounts& counts_;
};

}  // namespace titanium::test
