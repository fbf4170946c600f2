// What each rank executes: its list of the table with the communication that follows from it.
#pragma once

#include <string>
#include <vector>

#include "titanium/schedule/table.h"

namespace titanium::schedule {

enum class Op : uint8_t {
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kBackward,
  kSendActivation,     // the output of `stage`, to `peer`, which has stage + 1
  kReceiveActivation,  // the input of `stage`, from `peer`, which has stage - 1
  kSendGradient,       // the gradient of the input of `stage`, to `peer`, which has stage - 1
  kReceiveGradient,    // the gradient of the output of `stage`, from `peer`, which has stage + 1
  kReduceGradients,    // `stage` has all its weight gradients: replicas may be summed
};

struct Instruction {
  Op op = Op::kForward;
  int stage = 0;
  int micro_batch = -1;        // not of kReduceGradients
  int peer = -1;               // of the four that communicate
  bool overlaps_next = false;  // see Action

  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;

// As PyTorch writes it: "2F0", "1SEND_F3", "2RECV_B0", "1REDUCE_GRAD".
std::string to_string(const Instruction& instruction);

// Note [One order of everything]
// All actions of all ranks are put into one order, by the time at which they end on ideal ranks. A transfer between two
// ranks is one event of that order, after the action that makes the tensor and before the one that needs it. Each
// rank's program is its part of the order: a transfer stands as a send in one program and as a receive in the other. So
// the earliest event that has not happened can always happen, whether sends are buffered, posted or wait for the
// receiver, and each pair of ranks names its transfers in the same order on both sides, as NCCL and Gloo want it.
//
// Because the order goes by ends, a receive stands before the action that is running when the tensor arrives: a runtime
// that posts receives without waiting overlaps the transfer with that action.

// The programs of all ranks, for a table that check_table accepts. A receive is posted at most `ahead` steps (actions
// or pairs) before the one that needs it, so that a rank holds received tensors for ahead + 1 steps at most; the send
// waits as long. A tensor that stays on its rank (the turn of a V) is not sent.
std::vector<Program> make_programs(const Table& table, int ahead = 1);

}  // namespace titanium::schedule
