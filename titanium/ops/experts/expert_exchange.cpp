#include "titanium/ops/experts/expert_exchange.h"

namespace titanium::ops {
namespace {

class AllExpertsHere : public ExpertExchange {
 public:
  int64_t ranks() const override { return 1; }
  PendingPlan plan(const Tensor& counts_E) override {
    return [counts_E] { return RowPlan{.counts_nL = counts_E.unsqueeze(0)}; };
  }
  Pending send(const Tensor& rows, const RowPlan&) override {
    return [rows] { return rows; };
  }
  Pending send_back(const Tensor& rows, const RowPlan&) override {
    return [rows] { return rows; };
  }
};

}  // namespace

ExpertExchange& all_experts_here() {
  static AllExpertsHere exchange;
  return exchange;
}

}  // namespace titanium::ops
