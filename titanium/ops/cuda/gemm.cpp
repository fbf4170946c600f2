#include "titanium/ops/linear/gemm.h"

#include <c10/cuda/CUDAException.h>

#include <map>
#include <mutex>

#include "titanium/ops/cuda/gemm_plan.h"
#include "titanium/ops/cuda/gemm_trials.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

// Forward and backward run on different host threads.
struct Plans {
  std::mutex mutex;
  std::map<GemmProduct, GemmPlan> by_product;
  GemmChoices choices;
  bool trying = false;
  std::map<GemmProduct, StepTrials> trials;
};

Plans& plans() {
  static Plans& all = *new Plans;  // outlives the CUDA driver's own end
  return all;
}

}  // namespace

void gemm(const GemmArgs& args) {
  const TraceScope scope("gemm");
  Plans& all = plans();
  const std::scoped_lock lock(all.mutex);
  const GemmProduct product = product_of(args);
  auto plan = all.by_product.find(product);
  if (plan == all.by_product.end()) {
    plan = all.by_product.try_emplace(product, product, args, all.choices).first;
  }
  all.trying ? all.trials[product].run_next(plan->second, args) : plan->second.run(args);
}

void use_gemm_choices(const GemmChoices& choices) {
  Plans& all = plans();
  const std::scoped_lock lock(all.mutex);
  all.choices = choices;
  for (auto& [product, plan] : all.by_product) {
    if (const auto choice = choices.find(plan.name()); choice != choices.end()) plan.choose(choice->second);
  }
}

void start_gemm_trials() {
  const std::scoped_lock lock(plans().mutex);
  plans().trying = true;
}

GemmTrials finish_gemm_trials(const GemmDecision& decision) {
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  Plans& all = plans();
  const std::scoped_lock lock(all.mutex);
  all.trying = false;
  const auto trials = std::exchange(all.trials, {});
  GemmTrials found;
  for (const auto& [product, steps] : trials) {
    GemmPlan& plan = all.by_product.at(product);
    const std::vector<StepTime> times = steps.times(plan.candidates());
    GemmTrial& trial = found.trials.emplace_back(choose_by_steps(plan, steps.calls(), times));
    if (decision.by_loops) trial.sustained = choose_by_loops(plan, product, times);
    found.choices[plan.name()] = plan.choice();
    if (decision.on_product) decision.on_product(std::ssize(found.trials), std::ssize(trials));
  }
  return found;
}

std::string gemm_library_version() { return std::to_string(cublasLtGetVersion()); }

}  // namespace titanium::ops
