#include "titanium/schedule/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "titanium/base/error.h"
#include "titanium/schedule/timeline.h"

namespace titanium::schedule {
namespace {

Op to_op(Kind kind) { return static_cast<Op>(kind); }
static_assert(static_cast<int>(Op::kBackward) == static_cast<int>(Kind::kBackward));

struct Event {
  int rank;
  Step step;
};

struct Transfer {
  int after;  // index of the event after which it stands
  Instruction send;
  Instruction receive;
};

// See Note [One order of everything].
class Order {
 public:
  Order(const Table& table, int ahead) : table_(table), ahead_(ahead) {
    const Timeline timeline = simulate(table);
    for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      for (const Step& step : timeline.ranks[rank]) events_.push_back({static_cast<int>(rank), step});
    }
    std::ranges::stable_sort(events_, {}, [](const Event& event) { return event.step.end; });
    rank_events_.resize(table.ranks.size());
    for (size_t i = 0; i < events_.size(); ++i) {
      const int rank = events_[i].rank;
      for_actions(events_[i], [&](const Action& action) {
        if (action.kind == Kind::kWeight) return;
        step_of_[{action.stage, action.micro_batch, action.kind == Kind::kForward}] = rank_events_[rank].size();
      });
      rank_events_[rank].push_back(static_cast<int>(i));
    }
    for (size_t i = 0; i < events_.size(); ++i) {
      for_actions(events_[i], [&](const Action& action) { add_transfer(static_cast<int>(i), action); });
    }
    std::ranges::stable_sort(transfers_, {}, &Transfer::after);
  }

  std::vector<Program> programs() const {
    std::vector<Program> programs(table_.ranks.size());
    std::vector<int> weights_left(table_.stages(), table_.micro_batches);
    auto transfer = transfers_.begin();
    for (int i = 0; i < static_cast<int>(events_.size()); ++i) {
      Program& program = programs[events_[i].rank];
      for_actions(events_[i], [&](const Action& action) {
        program.push_back({to_op(action.kind), action.stage, action.micro_batch, -1, action.overlaps_next});
      });
      for (; transfer != transfers_.end() && transfer->after == i; ++transfer) {
        programs[transfer->receive.peer].push_back(transfer->send);
        programs[transfer->send.peer].push_back(transfer->receive);
      }
      for_actions(events_[i], [&](const Action& action) {
        const bool weights = action.kind == Kind::kWeight || action.kind == Kind::kBackward;
        if (weights && --weights_left[action.stage] == 0) program.push_back({Op::kReduceGradients, action.stage});
      });
    }
    return programs;
  }

 private:
  template <typename Visit>
  void for_actions(const Event& event, Visit visit) const {
    for (int i = 0; i < event.step.count; ++i) visit(table_.ranks[event.rank][event.step.first + i]);
  }

  void add_transfer(int event, const Action& action) {
    if (action.kind == Kind::kWeight) return;
    const bool forward = action.kind == Kind::kForward;
    const int to_stage = action.stage + (forward ? 1 : -1);
    if (to_stage < 0 || to_stage >= table_.stages()) return;
    const int from = events_[event].rank, to = table_.owner[to_stage];
    if (from == to) return;
    const int consumer = step_of_.at({to_stage, action.micro_batch, forward});
    const int bound = consumer - 1 - ahead_;
    const int after = bound < 0 ? event : std::max(event, rank_events_[to][bound]);
    transfers_.push_back(
        {after,
         {forward ? Op::kSendActivation : Op::kSendGradient, action.stage, action.micro_batch, to},
         {forward ? Op::kReceiveActivation : Op::kReceiveGradient, to_stage, action.micro_batch, from}});
  }

  const Table& table_;
  int ahead_;
  std::vector<Event> events_;
  std::vector<std::vector<int>> rank_events_;          // of each rank, the indices of its events
  std::map<std::tuple<int, int, bool>, int> step_of_;  // stage, micro-batch, forward: the index among its rank's events
  std::vector<Transfer> transfers_;
};

}  // namespace

std::string to_string(const Instruction& instruction) {
  constexpr const char* kNames[] = {"F", "I", "W", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD"};
  const char* name = kNames[static_cast<int>(instruction.op)];
  if (instruction.op == Op::kReduceGradients) return fmt::format("{}{}", instruction.stage, name);
  return fmt::format("{}{}{}", instruction.stage, name, instruction.micro_batch);
}

std::vector<Program> make_programs(const Table& table, int ahead) {
  TI_ASSERT(ahead >= 0);
  return Order(table, ahead).programs();
}

}  // namespace titanium::schedule
