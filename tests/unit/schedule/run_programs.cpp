#include "tests/unit/schedule/run_programs.h"

#include <fmt/ranges.h>

#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "titanium/base/error.h"

namespace titanium::schedule {
namespace {

bool is_send(const Instruction& i) { return i.op == Op::kSendActivation || i.op == Op::kSendGradient; }
bool is_receive(const Instruction& i) { return i.op == Op::kReceiveActivation || i.op == Op::kReceiveGradient; }

// The receive that belongs to a send of `rank`.
Instruction other_half(const Instruction& send, int rank) {
  const bool activation = send.op == Op::kSendActivation;
  return {activation ? Op::kReceiveActivation : Op::kReceiveGradient, send.stage + (activation ? 1 : -1),
          send.micro_batch, rank};
}

class Machine {
 public:
  Machine(const std::vector<Program>& programs, int stages, Transport transport)
      : programs_(programs), stages_(stages), transport_(transport), next_(programs.size(), 0), has_(programs.size()) {}

  void run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
        while (next_[rank] < programs_[rank].size() && execute(rank)) progress = true;
      }
    }
    std::vector<std::string> waits;
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      if (next_[rank] == programs_[rank].size()) continue;
      waits.push_back(fmt::format("rank {} at instruction {} ({})", rank, next_[rank] + 1,
                                  to_string(programs_[rank][next_[rank]])));
    }
    if (!waits.empty()) throw UsageError(fmt::format("The programs stop: {}.", fmt::join(waits, ", ")));
    for (const auto& [ranks, queue] : queues_) {
      if (queue.empty()) continue;
      throw UsageError(fmt::format("Rank {} has posted {} for rank {}, which does not take part.", ranks.first,
                                   to_string(queue.front()), ranks.second));
    }
  }

 private:
  using Tensor = std::tuple<int, int, bool>;  // stage, micro-batch, gradient: what a stage takes as input

  // Executes the next instruction of the rank; false if it must wait.
  bool execute(int rank) {
    const Instruction& instruction = programs_[rank][next_[rank]];
    if (is_send(instruction) || is_receive(instruction)) return communicate(rank, instruction);
    const size_t count = instruction.overlaps_next ? 2 : 1;
    for (size_t i = 0; i < count; ++i) {
      if (!has_input(rank, programs_[rank][next_[rank] + i])) return false;
    }
    for (size_t i = 0; i < count; ++i) compute(rank, programs_[rank][next_[rank]++]);
    return true;
  }

  bool has_input(int rank, const Instruction& i) const {
    if (i.op == Op::kForward) return i.stage == 0 || has_[rank].contains({i.stage, i.micro_batch, false});
    if (i.op != Op::kBackward && i.op != Op::kBackwardInput) return true;
    return i.stage == stages_ - 1 || has_[rank].contains({i.stage, i.micro_batch, true});
  }

  // A result may be the input of a stage on the same rank.
  void compute(int rank, const Instruction& i) {
    if (i.op == Op::kForward) has_[rank].insert({i.stage + 1, i.micro_batch, false});
    if (i.op == Op::kBackward || i.op == Op::kBackwardInput) has_[rank].insert({i.stage - 1, i.micro_batch, true});
  }

  void deliver(int rank, const Instruction& receive) {
    has_[rank].insert({receive.stage, receive.micro_batch, receive.op == Op::kReceiveGradient});
  }

  bool communicate(int rank, const Instruction& i) {
    switch (transport_) {
      case Transport::kRendezvous:
        return meet(rank, i);
      case Transport::kPosted:
        return post(rank, i);
      case Transport::kBuffered:
        return is_send(i) ? put(rank, i) : get(rank, i);
    }
    return false;
  }

  // The receiver does both halves.
  bool meet(int rank, const Instruction& i) {
    if (is_send(i)) return false;
    const int peer = i.peer;
    if (next_[peer] == programs_[peer].size()) return false;
    const Instruction& send = programs_[peer][next_[peer]];
    if (!is_send(send) || send.peer != rank || other_half(send, peer) != i) return false;
    deliver(rank, i);
    ++next_[rank];
    ++next_[peer];
    return true;
  }

  bool post(int rank, const Instruction& i) {
    queues_[{rank, i.peer}].push_back(i);
    ++next_[rank];
    auto& mine = queues_[{rank, i.peer}];
    auto& theirs = queues_[{i.peer, rank}];
    while (!mine.empty() && !theirs.empty()) {
      const bool sending = is_send(mine.front());
      const Instruction& send = sending ? mine.front() : theirs.front();
      const Instruction& receive = sending ? theirs.front() : mine.front();
      if (!is_send(send) || other_half(send, receive.peer) != receive) break;
      deliver(send.peer, receive);
      mine.pop_front();
      theirs.pop_front();
    }
    return true;
  }

  bool put(int rank, const Instruction& send) {
    queues_[{rank, send.peer}].push_back(send);
    ++next_[rank];
    return true;
  }

  bool get(int rank, const Instruction& receive) {
    auto& queue = queues_[{receive.peer, rank}];
    if (queue.empty() || other_half(queue.front(), receive.peer) != receive) return false;
    queue.pop_front();
    deliver(rank, receive);
    ++next_[rank];
    return true;
  }

  const std::vector<Program>& programs_;
  int stages_;
  Transport transport_;
  std::vector<size_t> next_;
  std::vector<std::set<Tensor>> has_;
  std::map<std::pair<int, int>, std::deque<Instruction>> queues_;  // posted by the first rank for the second
};

}  // namespace

void run_programs(const std::vector<Program>& programs, int stages, Transport transport) {
  Machine(programs, stages, transport).run();
}

}  // namespace titanium::schedule
