#include "titanium/parallel/pipeline_runner.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "titanium/base/error.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::parallel {
namespace {

using schedule::Instruction;
using schedule::Op;

// The limit holds for each direction; more sends under way would only hold memory.
constexpr size_t kSendsUnderWay = 2;

using Key = std::pair<int, int>;  // stage, micro-batch

// The tensors between two stages.
struct Arriving {
  Tensors tensors;
  std::vector<comm::Work> works;  // none if they were made here
};

// What the backward of a micro-batch in a stage needs. The outputs themselves are not kept: their places in the graph
// are enough.
struct Live {
  Tensors inputs;
  torch::autograd::edge_list outputs;  // of floating point
  Tensor first_grad;                   // of the last stage
  GradQueue deferred;
};

}  // namespace

// One run of a program.
class PipelineRunner::Pass {
 public:
  Pass(const PipelineRunner& runner, const StageForward& forward, const std::vector<HiddenStates>& hidden)
      : runner_(runner), forward_(forward), hidden_(hidden) {}

  Tensor run() {
    const schedule::Program& program = runner_.program_;
    for (size_t i = 0; i < program.size(); ++i) {
      if (runs_as_pair(i)) {
        execute_pair(program[i], program[i + 1]);
        ++i;
      } else {
        execute(program[i]);
      }
    }
    while (!sends_.empty()) finish_send();
    return total_;
  }

 private:
  // Two of one stage would gather and free the same weights.
  bool runs_as_pair(size_t i) const {
    const schedule::Program& program = runner_.program_;
    return runner_.run_pair_ && program[i].overlaps_next && program[i].stage != program[i + 1].stage;
  }

  void execute_pair(const Instruction& forward, const Instruction& backward) {
    const Device device = hidden_.front().device;
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    const at::ThreadLocalState here;
    runner_.run_pair_([&] { execute(forward); },
                      [&] {
                        const at::ThreadLocalStateGuard as_here(here);
                        const c10::StreamGuard on_stream(stream);
                        execute(backward);
                      });
  }

  void execute(const Instruction& instruction) {
    const TraceScope scope("pipeline", TraceScope::is_watched() ? to_string(instruction) : std::string());
    const Key key{instruction.stage, instruction.micro_batch};
    switch (instruction.op) {
      case Op::kForward:
        return forward(key);
      case Op::kBackward:
        return backward(key, /*defer=*/false);
      case Op::kBackwardInput:
        return backward(key, /*defer=*/true);
      case Op::kBackwardWeight:
        return compute_weight_grads(key);
      case Op::kSendActivation:
        return send(take(outputs_, key), instruction.peer);
      case Op::kSendGradient:
        return send(take(input_grads_, key), instruction.peer);
      case Op::kReceiveActivation:
        return receive(inputs_[key], instruction.peer, /*grads=*/false);
      case Op::kReceiveGradient:
        return receive(output_grads_[key], instruction.peer, /*grads=*/true);
      case Op::kReduceGradients:
        return;  // all at once, when the step is done
    }
  }

  bool is_last(int stage) const { return stage + 1 == static_cast<int>(runner_.owner_.size()); }
  bool is_here(int stage) const { return runner_.owner_[static_cast<size_t>(stage)] == runner_.group_->rank(); }

  bool has_grad(size_t place) const { return at::isFloatingType(hidden_[place].dtype); }

  void forward(const Key& key) {
    const auto [stage, micro_batch] = key;
    const Tensors inputs = stage > 0 ? arrived(inputs_, key) : Tensors();
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].requires_grad_(runner_.backward_ && has_grad(i));
    Tensors outputs = forward_(stage, micro_batch, inputs);
    TI_ASSERT(outputs.size() == (is_last(stage) ? 1 : hidden_.size()), "stage {} gives {} tensors", stage,
              outputs.size());
    if (runner_.backward_) keep(key, inputs, outputs);
    for (Tensor& output : outputs) output = output.detach();
    if (is_last(stage)) {
      total_ = total_.defined() ? total_ + outputs[0] : outputs[0];
    } else if (is_here(stage + 1)) {
      inputs_[{stage + 1, micro_batch}].tensors = std::move(outputs);
    } else {
      outputs_[key] = std::move(outputs);
    }
  }

  void keep(const Key& key, const Tensors& inputs, const Tensors& outputs) {
    Live live{.inputs = inputs};
    if (is_last(key.first)) live.first_grad = at::ones_like(outputs[0]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (is_last(key.first) || has_grad(i)) live.outputs.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
    }
    live_.emplace(key, std::move(live));
  }

  void backward(const Key& key, bool defer) {
    const auto [stage, micro_batch] = key;
    Live& live = live_.at(key);
    const Tensors grads =
        is_last(stage) ? Tensors{std::exchange(live.first_grad, Tensor())} : arrived(output_grads_, key);
    for (Parameter* parameter : runner_.parameters_) parameter->deferred = defer ? &live.deferred : nullptr;
    torch::autograd::Engine::get_default_engine().execute(live.outputs, grads, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
    for (Parameter* parameter : runner_.parameters_) parameter->deferred = nullptr;
    if (stage > 0) {
      if (is_here(stage - 1)) {
        output_grads_[{stage - 1, micro_batch}].tensors = input_grads(live.inputs);
      } else {
        input_grads_[key] = input_grads(live.inputs);
      }
    }
    live.inputs.clear();
    live.outputs.clear();
    if (!defer) live_.erase(key);
  }

  // What a stage does not use has a gradient of zero.
  Tensors input_grads(const Tensors& inputs) const {
    Tensors grads;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!has_grad(i)) continue;
      grads.push_back(inputs[i].grad().defined() ? inputs[i].grad().contiguous() : at::zeros_like(inputs[i]));
    }
    return grads;
  }

  void compute_weight_grads(const Key& key) {
    for (const auto& product : live_.at(key).deferred) product();
    live_.erase(key);
  }

  void send(const Tensors& tensors, int peer) {
    std::vector<comm::Work>& works = sends_.emplace_back();
    for (const Tensor& tensor : tensors) works.push_back(runner_.group_->send(tensor.contiguous(), peer));
    if (sends_.size() > 2 * kSendsUnderWay) finish_send();
  }

  void finish_send() {
    for (const comm::Work& work : sends_.front()) work->wait();
    sends_.pop_front();
  }

  void receive(Arriving& arriving, int peer, bool grads) {
    for (size_t i = 0; i < hidden_.size(); ++i) {
      if (grads && !has_grad(i)) continue;
      const auto options = at::TensorOptions(hidden_[i].dtype).device(hidden_[i].device);
      arriving.tensors.push_back(at::empty(hidden_[i].shape, options));
      arriving.works.push_back(runner_.group_->receive(arriving.tensors.back(), peer));
    }
  }

  static Tensors arrived(std::map<Key, Arriving>& arriving, const Key& key) {
    auto node = arriving.extract(key);
    TI_ASSERT(!node.empty(), "stage {}, micro-batch {}: its input is not there", key.first, key.second);
    for (const comm::Work& work : node.mapped().works) work->wait();
    return std::move(node.mapped().tensors);
  }

  static Tensors take(std::map<Key, Tensors>& ready, const Key& key) { return ready.extract(key).mapped(); }

  const PipelineRunner& runner_;
  const StageForward& forward_;
  const std::vector<HiddenStates>& hidden_;
  std::map<Key, Live> live_;
  std::map<Key, Arriving> inputs_, output_grads_;  // of stages here
  std::map<Key, Tensors> outputs_, input_grads_;   // to be sent
  std::deque<std::vector<comm::Work>> sends_;
  Tensor total_;
};

PipelineRunner::PipelineRunner(const schedule::Table& table, comm::GroupPtr group, std::vector<Parameter*> parameters,
                               RunPair run_pair)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      owner_(table.owner),
      backward_(table.backward),
      program_(schedule::make_programs(table)[static_cast<size_t>(group_->rank())]),
      run_pair_(std::move(run_pair)) {}

Tensor PipelineRunner::run(const StageForward& forward, const std::vector<HiddenStates>& hidden) const {
  TI_ASSERT(backward_ == c10::GradMode::is_enabled(), "the table has {} backwards", backward_ ? "" : "no");
  return Pass(*this, forward, hidden).run();
}

}  // namespace titanium::parallel
