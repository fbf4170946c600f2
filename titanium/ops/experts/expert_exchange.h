// Experts spread over ranks: rows travel to the rank that has their expert, and back. n ranks, E experts in all, L =
// E/n of them here.
#pragma once

#include <vector>

#include "titanium/ops/row_exchange.h"

namespace titanium::ops {

// How many rows go where. The host knows it, because the sizes of messages follow from it.
struct RowPlan {
  std::vector<int64_t> to;    // rows of this rank for the experts of each rank
  std::vector<int64_t> from;  // rows of each rank for the experts here
  Tensor counts_nL;           // int32: rows of each rank for each expert here
  int64_t received = 0;       // the sum of `from`
};
using PendingPlan = std::function<RowPlan()>;

// Operators take the exchange as an argument; parallel/ implements it, and `all_experts_here` is that of one rank.
// Ranks have experts in their order: L of them each.
class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;
  virtual int64_t ranks() const = 0;
  // Tells all ranks how many rows go to each expert, int32 [E]. The result may be asked for later, once other work has
  // been queued: the host then waits for it.
  virtual PendingPlan plan(const Tensor& counts_E) = 0;
  // All-to-all: rows in the order of experts [R, C] -> the rows of all ranks for the experts here, [received, C], those
  // of one rank after those of another, each in the order of experts.
  virtual Pending send(const Tensor& rows_RC, const RowPlan& plan) = 0;
  // The all-to-all back to the ranks that the rows came from.
  virtual Pending send_back(const Tensor& rows, const RowPlan& plan) = 0;
  // Runs both to their ends, with one computing while rows of the other travel; by default one after the other. The
  // second may run on another thread.
  virtual void run_pair(const std::function<void()>& first, const std::function<void()>& second) { first(), second(); }
};

ExpertExchange& all_experts_here();

}  // namespace titanium::ops
