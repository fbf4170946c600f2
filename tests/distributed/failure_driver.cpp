// `titanium train` with a fault, for failures.py. The fault is in the variable FAULT:
//
//   <kind>:<rank>:<phase>:<step>    kind: kill, stop, throw   phase: start, forward, backward, optimizer, and
//                                   experts, before the first rows of a layer are exchanged
//
// It happens in the first attempt of a job only, so that a restarted job finishes.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/comm/environment.h"
#include "titanium/train/trainer.h"

namespace {

using namespace titanium;

struct Fault {
  std::string kind;
  int rank = -1;
  std::string phase;
  int64_t step = 0;
};

Fault read_fault() {
  std::istringstream text(std::getenv("FAULT"));
  std::string kind, rank, phase, step;
  std::getline(text, kind, ':');
  std::getline(text, rank, ':');
  std::getline(text, phase, ':');
  std::getline(text, step, ':');
  return {kind, std::stoi(rank), phase, std::stoll(step)};
}

void happen(const Fault& fault) {
  if (fault.kind == "throw") throw Error("the fault of this test");
  std::raise(fault.kind == "kill" ? SIGKILL : SIGSTOP);
}

// The fault happens inside of what the unit's other hooks do.
class FaultyHook : public nn::UnitHook {
 public:
  FaultyHook(const train::TrainState& run, Fault fault) : run_(run), fault_(std::move(fault)) {}
  void before_forward() override {
    strike("forward");
    strike("experts");
  }
  void before_backward() override { strike("backward"); }

 private:
  void strike(const char* phase) const {
    if (fault_.phase == phase && run_.step + 1 == fault_.step) happen(fault_);
  }
  const train::TrainState& run_;
  Fault fault_;
};

// Between the backward and the update.
class FaultyExecutor : public train::Executor {
 public:
  FaultyExecutor(std::unique_ptr<train::Executor> inner, const train::TrainState& run, Fault fault)
      : inner_(std::move(inner)), run_(run), fault_(std::move(fault)) {}
  Tensor forward_backward(const std::vector<train::BatchPtr>& batches, double scale) override {
    const Tensor loss = inner_->forward_backward(batches, scale);
    if (run_.step + 1 == fault_.step) happen(fault_);
    return loss;
  }
  Tensor loss(const train::Batch& batch) override { return inner_->loss(batch); }
  int64_t loss_rank() const override { return inner_->loss_rank(); }
  const Parameter* second_copy() const override { return inner_->second_copy(); }

 private:
  std::unique_ptr<train::Executor> inner_;
  const train::TrainState& run_;
  Fault fault_;
};

void install(const Fault& fault, train::TrainState& run) {
  if (fault.phase == "optimizer") {
    run.executor = std::make_unique<FaultyExecutor>(std::move(run.executor), run, fault);
  }
  const std::vector<nn::Unit*> units = run.model->units();
  auto struck = units.begin() + 2;  // the second block
  if (fault.phase == "experts") {
    struck = std::ranges::find_if(units, [](const nn::Unit* unit) { return unit->name.ends_with(".experts"); });
  }
  (*struck)->hooks.push_back(std::make_shared<FaultyHook>(run, fault));
}

int train_with_fault(const std::vector<std::string>& options) {
  const std::atomic<bool> stop_requested = false;
  const comm::Environment environment = comm::read_environment();
  const Fault fault = read_fault();
  const bool mine = fault.rank == environment.rank && environment.restart_count == 0;
  if (mine && fault.phase == "start") happen(fault);
  train::TrainCallbacks callbacks{stop_requested, [](const std::string& line) {
                                    std::cerr << "titanium: " << line << std::endl;
                                    std::_Exit(1);
                                  }};
  if (mine) callbacks.on_built = [&](train::TrainState& run) { install(fault, run); };
  train::train(config::load_config(options), callbacks);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  log_to_stdout(LogLevel::kInfo);
  try {
    return train_with_fault({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "titanium: " << error.what() << std::endl;
    return 1;
  }
}
