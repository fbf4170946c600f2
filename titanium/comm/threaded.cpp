#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "titanium/comm/error.h"
#include "titanium/comm/fake.h"
#include "titanium/comm/group_rank.h"
#include "titanium/comm/reduce_parts.h"
#include "titanium/comm/world.h"

namespace titanium::comm {
namespace {

// What one rank brings to a collective: a copy, so that the caller's tensor is free at once.
struct Deposit {
  std::string call;  // equal on all ranks, or they have lost each other
  Tensor tensor;
  std::vector<int64_t> rows;  // all_to_all
};
using DepositPtr = std::shared_ptr<const Deposit>;

// One collective of a group.
struct Exchange {
  std::map<int, DepositPtr> deposits;  // by group rank
  int taken = 0;
};

// What the members of one group have in common.
struct Room {
  std::map<uint64_t, Exchange> exchanges;                                 // by number of the collective
  std::map<std::pair<int, int>, std::map<uint64_t, DepositPtr>> letters;  // (from, to), by number
};

// What the ranks of one set of worlds have in common.
struct Shared {
  explicit Shared(int size) : gone(size) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Room>> rooms;
  std::vector<bool> gone;  // by world rank
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

std::string describe(const char* name, const Tensor& tensor, bool with_size = true) {
  if (!with_size) return fmt::format("{} of {}", name, dtype_name(tensor.scalar_type()));
  return fmt::format("{} of {} {}", name, tensor.numel(), dtype_name(tensor.scalar_type()));
}

class ThreadedGroup;

// Ends when all members have brought their part; then makes this rank's result of them.
class ThreadedWork : public PendingWork {
 public:
  using Parts = std::vector<DepositPtr>;
  using Complete = std::function<void(const Parts&)>;

  ThreadedWork(std::function<Parts()> take, Complete complete)
      : take_(std::move(take)), complete_(std::move(complete)) {}
  void wait() override { complete_(take_()); }

 private:
  std::function<Parts()> take_;
  Complete complete_;
};

class ThreadedGroup : public Group {
 public:
  ThreadedGroup(std::string axis, int rank, const std::vector<int>& members, std::shared_ptr<Shared> shared,
                std::shared_ptr<Room> room)
      : Group(std::move(axis), rank, members), shared_(std::move(shared)), room_(std::move(room)) {}

 protected:
  Work start_all_reduce(const Tensor& tensor, Reduce op) override {
    return start({describe("all_reduce", tensor), tensor.clone(), {}},
                 [=](const auto& parts) { reduce_parts(tensor, tensors(parts), op); });
  }
  Work start_all_gather(const Tensor& out, const Tensor& in) override {
    return start({describe("all_gather", in), in.clone(), {}}, [=, this](const auto& parts) {
      const Tensor slots = out.view({size(), -1});
      for (int rank = 0; rank < size(); ++rank) slots[rank].copy_(parts[rank]->tensor.view({-1}));
    });
  }
  Work start_reduce_scatter(const Tensor& out, const Tensor& in, Reduce op) override {
    return start({describe("reduce_scatter", in), in.clone(), {}}, [=, this](const auto& parts) {
      std::vector<Tensor> chunks;
      for (const DepositPtr& part : parts) chunks.push_back(part->tensor.view({size(), -1})[rank()]);
      reduce_parts(out, chunks, op);
    });
  }
  Work start_broadcast(const Tensor& tensor, int root) override {
    return start({describe("broadcast", tensor), root == rank() ? tensor.clone() : Tensor(), {}},
                 [=, this](const auto& parts) {
                   if (root != rank()) tensor.copy_(parts[root]->tensor);
                 });
  }
  Work start_all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                        std::span<const int64_t> in_rows) override {
    std::vector<int64_t> wanted(out_rows.begin(), out_rows.end());
    return start({describe("all_to_all", in, false), in.clone(), {in_rows.begin(), in_rows.end()}},
                 [=, this](const auto& parts) { receive_rows(out, wanted, parts); });
  }
  Work start_send(const Tensor& tensor, int to) override;
  Work start_receive(const Tensor& tensor, int from) override;
  void run_barrier() override {
    start({"barrier", Tensor(), {}}, [](const auto&) {})->wait();
  }

 private:
  using Parts = ThreadedWork::Parts;

  static std::vector<Tensor> tensors(const Parts& parts) {
    std::vector<Tensor> all;
    for (const DepositPtr& part : parts) all.push_back(part->tensor);
    return all;
  }
  void receive_rows(const Tensor& out, const std::vector<int64_t>& wanted, const Parts& parts) const;
  Work start(Deposit deposit, ThreadedWork::Complete complete);
  Parts take(uint64_t number);
  // Waits, with the lock held, until `ready`; throws CommError when `missing` (which may name nobody) has left.
  template <typename Ready, typename Missing>
  void wait_until(std::unique_lock<std::mutex>& lock, const Ready& ready, const Missing& missing) const;

  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Room> room_;
  uint64_t collectives_ = 0;
  std::map<int, uint64_t> sent_, received_;  // by peer
};

void ThreadedGroup::receive_rows(const Tensor& out, const std::vector<int64_t>& wanted, const Parts& parts) const {
  int64_t row = 0;
  for (int from = 0; from < size(); ++from) {
    const Deposit& part = *parts[from];
    TI_CHECK(part.rows[rank()] == wanted[from], "rank {} sends {} rows and rank {} expects {}", members()[from],
             part.rows[rank()], members()[rank()], wanted[from]);
    int64_t first = 0;
    for (int member = 0; member < rank(); ++member) first += part.rows[member];
    out.narrow(0, row, wanted[from]).copy_(part.tensor.narrow(0, first, wanted[from]));
    row += wanted[from];
  }
}

template <typename Ready, typename Missing>
void ThreadedGroup::wait_until(std::unique_lock<std::mutex>& lock, const Ready& ready, const Missing& missing) const {
  std::optional<int> left;
  const auto decided = [&] {
    if (ready()) return true;
    for (int member = 0; member < size(); ++member)
      if (shared_->gone[members()[member]] && missing(member)) left = members()[member];
    return left.has_value();
  };
  const auto timeout = shared_->timeout;
  if (!shared_->changed.wait_for(lock, timeout, decided))
    throw CommError(fmt::format("not all members came within {} s", std::chrono::duration<double>(timeout).count()));
  if (left) throw CommError(fmt::format("rank {} has left", *left));
}

Work ThreadedGroup::start(Deposit deposit, ThreadedWork::Complete complete) {
  const uint64_t number = collectives_++;
  {
    const std::lock_guard lock(shared_->mutex);
    room_->exchanges[number].deposits[rank()] = std::make_shared<Deposit>(std::move(deposit));
  }
  shared_->changed.notify_all();
  return std::make_unique<ThreadedWork>([this, number] { return take(number); }, std::move(complete));
}

ThreadedWork::Parts ThreadedGroup::take(uint64_t number) {
  std::unique_lock lock(shared_->mutex);
  Exchange& exchange = room_->exchanges.at(number);
  wait_until(
      lock, [&] { return static_cast<int>(exchange.deposits.size()) == size(); },
      [&](int member) { return !exchange.deposits.contains(member); });
  Parts parts;
  for (const auto& [member, deposit] : exchange.deposits) {
    TI_CHECK(deposit->call == exchange.deposits.at(rank())->call, "it is {} here and {} on rank {}",
             exchange.deposits.at(rank())->call, deposit->call, members()[member]);
    parts.push_back(deposit);
  }
  if (++exchange.taken == size()) room_->exchanges.erase(number);
  return parts;
}

Work ThreadedGroup::start_send(const Tensor& tensor, int to) {
  {
    const std::lock_guard lock(shared_->mutex);
    room_->letters[{rank(), to}][sent_[to]++] =
        std::make_shared<Deposit>(Deposit{describe("tensor", tensor), tensor.clone(), {}});
  }
  shared_->changed.notify_all();
  return std::make_unique<ThreadedWork>([] { return Parts(); }, [](const auto&) {});
}

Work ThreadedGroup::start_receive(const Tensor& tensor, int from) {
  const uint64_t number = received_[from]++;
  const auto take_letter = [this, from, number] {
    std::unique_lock lock(shared_->mutex);
    auto& letters = room_->letters[{from, rank()}];
    wait_until(lock, [&] { return letters.contains(number); }, [&](int member) { return member == from; });
    Parts letter{letters.at(number)};
    letters.erase(number);
    return letter;
  };
  return std::make_unique<ThreadedWork>(take_letter, [this, from, tensor](const Parts& letter) {
    TI_CHECK(letter[0]->call == describe("tensor", tensor), "rank {} sent a {} and rank {} expects a {}",
             members()[from], letter[0]->call, members()[rank()], describe("tensor", tensor));
    tensor.copy_(letter[0]->tensor.view_as(tensor));
  });
}

class ThreadedWorld : public World {
 public:
  ThreadedWorld(int rank, std::shared_ptr<Shared> shared) : rank_(rank), shared_(std::move(shared)) {}
  ~ThreadedWorld() override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->gone[rank_] = true;
    }
    shared_->changed.notify_all();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_->gone.size()); }
  GroupPtr group(const std::string& axis, const std::vector<int>& members) override {
    const int place = group_rank(*this, members);
    if (members.size() == 1) return make_fake_group(axis, place, members);
    std::string key = fmt::format("{} {}", axis, fmt::join(members, ","));
    key += fmt::format(" {}", groups_made_[key]++);
    const std::lock_guard lock(shared_->mutex);
    std::shared_ptr<Room>& room = shared_->rooms[key];
    if (!room) room = std::make_shared<Room>();
    return std::make_shared<ThreadedGroup>(axis, place, members, shared_, room);
  }
  GroupPtr host_group(const std::string& axis, const std::vector<int>& members) override {
    return group(axis, members);
  }
  GroupPtr patient_host_group(const std::string& axis, const std::vector<int>& members, std::chrono::milliseconds,
                              const std::string&) override {
    return group(axis, members);
  }
  void set_timeout(std::chrono::milliseconds timeout) override {
    const std::lock_guard lock(shared_->mutex);
    shared_->timeout = timeout;
  }
  void report_failure(const std::string&) override {}

 private:
  int rank_;
  std::shared_ptr<Shared> shared_;
  std::map<std::string, int> groups_made_;
};

}  // namespace

std::vector<std::unique_ptr<World>> make_threaded_worlds(int size) {
  const auto shared = std::make_shared<Shared>(size);
  std::vector<std::unique_ptr<World>> worlds;
  for (int rank = 0; rank < size; ++rank) worlds.push_back(std::make_unique<ThreadedWorld>(rank, shared));
  return worlds;
}

}  // namespace titanium::comm
