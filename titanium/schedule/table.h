// A pipeline schedule as data: for each rank the list of actions that it runs, in order.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace titanium::schedule {

// What is computed for one micro-batch of one stage. A backward is either whole (B) or in two parts: the gradient of
// the input (I), which the stage before waits for, and later the gradients of the weights (W).
enum class Kind : uint8_t { kForward, kInput, kWeight, kBackward };

struct Action {
  int stage = 0;
  Kind kind = Kind::kForward;
  int micro_batch = 0;
  // This forward and the next action of the list, a backward that does not depend on it, form a pair: both are ready
  // before either begins, and the runtime may interleave them. PyTorch's OVERLAP_F_B.
  bool overlaps_next = false;

  auto operator<=>(const Action&) const = default;
};

// As PyTorch writes it: "2F0", "1B3", "0I5", "0W5".
std::string to_string(const Action& action);

// How stages are dealt to ranks. kLoop: stage % ranks. kV: forth and back, so that with two stages per rank, rank r has
// r and 2 * ranks - 1 - r, and rank 0 holds both the first and the last.
enum class Placement : uint8_t { kLoop, kV };

struct Shape {
  int ranks = 1;
  int stages_per_rank = 1;
  int micro_batches = 1;

  int stages() const { return ranks * stages_per_rank; }
};

struct Table {
  int micro_batches = 0;
  std::vector<int> owner;                  // of each stage, the rank that holds it
  std::vector<std::vector<Action>> ranks;  // of each rank, its actions in order
  bool backward = true;                    // false: forwards only, as for validation

  int stages() const { return static_cast<int>(owner.size()); }
};

// The rank of each stage.
std::vector<int> place_stages(Placement placement, int ranks, int stages);

// A table with its stages placed and its lists empty.
Table empty_table(const Shape& shape, Placement placement);

// The table without the micro-batches from `micro_batches` on. What is left of a valid table is valid.
Table first_micro_batches(Table table, int micro_batches);

// Forwards alone, as for validation: every stage takes all micro-batches before the next stage begins.
Table forwards_only(const std::vector<int>& owner, int ranks, int micro_batches);

// For each rank, the largest number of forwards whose backward (B or W) is still to come: how many activations of one
// stage and micro-batch it holds at once.
std::vector<int> peak_live_activations(const Table& table);

}  // namespace titanium::schedule
