// Runs the optimizer, the schedule and the gradient norm for parity/optimizer.py.
//
//   optimizer_driver adam IN.safetensors OUT.safetensors OPTIONS    IN: value.FQN and grad.STEP.FQN
//   optimizer_driver muon IN.safetensors OUT.safetensors OPTIONS
//   optimizer_driver schedule [OPTIONS...]                          prints the factors of each on a line
//   optimizer_driver norm IN.safetensors                            prints the norm of all tensors together
//
// OPTIONS is a JSON object, [OPTIONS...] an array of them.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/optim/adam.h"
#include "titanium/optim/grad_norm.h"
#include "titanium/optim/lr_schedule.h"
#include "titanium/optim/muon.h"

namespace titanium::optim {
namespace {

using checkpoint::NamedTensor;
using checkpoint::SafetensorsReader;
using nlohmann::json;

std::vector<std::unique_ptr<Parameter>> read_parameters(const SafetensorsReader& reader, const std::string& prefix) {
  std::vector<std::unique_ptr<Parameter>> parameters;
  for (const std::string& name : reader.names()) {
    if (!name.starts_with(prefix)) continue;
    const auto& entry = reader.entry(name);
    parameters.push_back(std::make_unique<Parameter>(name.substr(prefix.size()), entry.shape));
    parameters.back()->materialize(entry.dtype, at::kCPU);
    reader.read_box(name, whole_box(entry.shape), parameters.back()->value);
  }
  return parameters;
}

std::vector<Parameter*> pointers(const std::vector<std::unique_ptr<Parameter>>& owned) {
  std::vector<Parameter*> result;
  for (const auto& parameter : owned) result.push_back(parameter.get());
  return result;
}

std::unique_ptr<Optimizer> make_adam(const std::vector<Parameter*>& parameters, const json& options) {
  return std::make_unique<Adam>(parameters, AdamOptions{.beta1 = options["beta1"],
                                                        .beta2 = options["beta2"],
                                                        .eps = options["eps"],
                                                        .weight_decay = options["weight_decay"],
                                                        .decoupled = options["decoupled"]});
}

std::unique_ptr<Optimizer> make_muon(const std::vector<Parameter*>& parameters, const json& options) {
  const MuonOptions muon = {.momentum = options["momentum"],
                            .nesterov = options["nesterov"],
                            .weight_decay = options["weight_decay"],
                            .scale = parse_muon_scale(options["adjust_lr_fn"].get<std::string>()),
                            .newton_schulz = {.steps = options["ns_steps"]}};
  return std::make_unique<Muon>(std::vector<MuonGroup>{{parameters, muon}});
}

void run_optimizer(const std::string& in, const std::string& out, const json& options, const auto& make) {
  const SafetensorsReader reader(in);
  const auto parameters = read_parameters(reader, "value.");
  const std::unique_ptr<Optimizer> optimizer = make(pointers(parameters), options);
  optimizer->materialize();
  const std::vector<double> lrs = options["lrs"];
  for (size_t step = 0; step < lrs.size(); ++step) {
    optimizer->zero_grad();
    for (const auto& parameter : parameters) {
      const std::string name = fmt::format("grad.{}.{}", step, parameter->fqn);
      if (reader.contains(name)) parameter->grad = reader.tensor(name);
    }
    optimizer->step(lrs[step]);
  }
  std::vector<NamedTensor> results;
  for (const auto& parameter : parameters) results.push_back({"value." + parameter->fqn, parameter->value});
  for (const StateTensor& state : optimizer->state()) {
    results.push_back({fmt::format("{}.{}", state.name, state.parameter->fqn), state.tensor});
  }
  checkpoint::write_safetensors(out, results);
}

void print_schedule(const json& options) {
  LrScheduleOptions wanted{.total_steps = options["total_steps"],
                           .warmup_steps = options["warmup_steps"],
                           .decay_ratio = std::nullopt,
                           .decay = parse_lr_decay(options["decay_type"].get<std::string>()),
                           .min_factor = options["min_lr_factor"]};
  if (!options["decay_ratio"].is_null()) wanted.decay_ratio = options["decay_ratio"].get<double>();
  const LrSchedule schedule = plan_lr_schedule(wanted);
  for (int64_t step = 0; step < wanted.total_steps; ++step)
    std::cout << fmt::format("{:.17g} ", lr_factor(schedule, step));
  std::cout << "\n";
}

void print_norm(const std::string& in) {
  const auto parameters = read_parameters(SafetensorsReader(in), "");
  for (const auto& parameter : parameters) parameter->grad = parameter->value.detach();
  std::cout << fmt::format("{:.17g}\n", total_norm(pointers(parameters)).item<double>());
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "adam" && arguments.size() == 4) {
    run_optimizer(arguments[1], arguments[2], json::parse(arguments[3]), make_adam);
  } else if (command == "muon" && arguments.size() == 4) {
    run_optimizer(arguments[1], arguments[2], json::parse(arguments[3]), make_muon);
  } else if (command == "schedule" && arguments.size() == 2) {
    for (const json& options : json::parse(arguments[1])) print_schedule(options);
  } else if (command == "norm" && arguments.size() == 2) {
    print_norm(arguments[1]);
  } else {
    std::cerr << "usage: see the head of optimizer_driver.cpp\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace titanium::optim

int main(int argc, char** argv) { return titanium::optim::run({argv + 1, argv + argc}); }
