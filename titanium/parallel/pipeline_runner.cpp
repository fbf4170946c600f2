#include "titanium/parallel/pipeline_runner.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

using schedule::Instruction;
using schedule::Op;

// Of one direction; more would only hold memory.
constexpr size_t kSendsUnderWay = 2;

using Key = std::pair<int, int>;  // stage, micro-batch

struct Arriving {
  Tensor tensor;
  comm::Work work;  // null: it was made here
};

// What the backward of a micro-batch in a stage needs. The output itself is not kept: its place in the graph is enough.
struct Live {
  Tensor input;
  torch::autograd::Edge output;
  Tensor first_grad;  // of the last stage
  GradQueue put_off;
};

}  // namespace

// One run of a program.
class PipelineRunner::Pass {
 public:
  Pass(const PipelineRunner& runner, const StageForward& forward, const HiddenStates& hidden)
      : runner_(runner), forward_(forward), hidden_(hidden) {}

  Tensor run() {
    for (const Instruction& instruction : runner_.program_) execute(instruction);
    while (!sends_.empty()) finish_send();
    return total_;
  }

 private:
  void execute(const Instruction& instruction) {
    const Key key{instruction.stage, instruction.micro_batch};
    switch (instruction.op) {
      case Op::kForward:
        return forward(key);
      case Op::kBackward:
        return backward(key, /*put_off=*/false);
      case Op::kBackwardInput:
        return backward(key, /*put_off=*/true);
      case Op::kBackwardWeight:
        return compute_weight_grads(key);
      case Op::kSendActivation:
        return send(take(outputs_, key), instruction.peer);
      case Op::kSendGradient:
        return send(take(input_grads_, key), instruction.peer);
      case Op::kReceiveActivation:
        return receive(inputs_[key], instruction.peer);
      case Op::kReceiveGradient:
        return receive(output_grads_[key], instruction.peer);
      case Op::kReduceGradients:
        return;  // all at once, when the step is done
    }
  }

  bool is_last(int stage) const { return stage + 1 == static_cast<int>(runner_.owner_.size()); }
  bool is_here(int stage) const { return runner_.owner_[static_cast<size_t>(stage)] == runner_.group_->rank(); }

  void forward(const Key& key) {
    const auto [stage, micro_batch] = key;
    Tensor input;
    if (stage > 0) input = arrived(inputs_, key).requires_grad_(runner_.backward_);
    const Tensor output = forward_(stage, micro_batch, input);
    if (runner_.backward_) {
      Live live{.input = input, .output = torch::autograd::impl::gradient_edge(output)};
      if (is_last(stage)) live.first_grad = at::ones_like(output);
      live_.emplace(key, std::move(live));
    }
    if (is_last(stage)) {
      total_ = total_.defined() ? total_ + output.detach() : output.detach();
    } else if (is_here(stage + 1)) {
      inputs_[{stage + 1, micro_batch}].tensor = output.detach();
    } else {
      outputs_[key] = output.detach();
    }
  }

  void backward(const Key& key, bool put_off) {
    const auto [stage, micro_batch] = key;
    Live& live = live_.at(key);
    const Tensor grad = is_last(stage) ? std::exchange(live.first_grad, Tensor()) : arrived(output_grads_, key);
    for (Parameter* parameter : runner_.parameters_) parameter->put_off = put_off ? &live.put_off : nullptr;
    torch::autograd::Engine::get_default_engine().execute({live.output}, {grad}, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
    for (Parameter* parameter : runner_.parameters_) parameter->put_off = nullptr;
    if (stage > 0) {
      const Tensor input_grad = live.input.grad().contiguous();
      if (is_here(stage - 1)) {
        output_grads_[{stage - 1, micro_batch}].tensor = input_grad;
      } else {
        input_grads_[key] = input_grad;
      }
    }
    live.input = Tensor();
    live.output = {};
    if (!put_off) live_.erase(key);
  }

  void compute_weight_grads(const Key& key) {
    for (const auto& product : live_.at(key).put_off) product();
    live_.erase(key);
  }

  void send(const Tensor& tensor, int peer) {
    sends_.push_back(runner_.group_->send(tensor.contiguous(), peer));
    if (sends_.size() > 2 * kSendsUnderWay) finish_send();
  }

  void finish_send() {
    sends_.front()->wait();
    sends_.pop_front();
  }

  void receive(Arriving& arriving, int peer) {
    arriving.tensor = at::empty(hidden_.shape, at::TensorOptions(hidden_.dtype).device(hidden_.device));
    arriving.work = runner_.group_->receive(arriving.tensor, peer);
  }

  static Tensor arrived(std::map<Key, Arriving>& arriving, const Key& key) {
    auto node = arriving.extract(key);
    TI_ASSERT(!node.empty(), "stage {}, micro-batch {}: its input is not there", key.first, key.second);
    if (node.mapped().work) node.mapped().work->wait();
    return node.mapped().tensor;
  }

  static Tensor take(std::map<Key, Tensor>& ready, const Key& key) { return ready.extract(key).mapped(); }

  const PipelineRunner& runner_;
  const StageForward& forward_;
  const HiddenStates& hidden_;
  std::map<Key, Live> live_;
  std::map<Key, Arriving> inputs_, output_grads_;  // of stages here
  std::map<Key, Tensor> outputs_, input_grads_;    // to be sent
  std::deque<comm::Work> sends_;
  Tensor total_;
};

PipelineRunner::PipelineRunner(const schedule::Table& table, comm::GroupPtr group, std::vector<Parameter*> parameters)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      owner_(table.owner),
      backward_(table.backward),
      program_(schedule::make_programs(table)[static_cast<size_t>(group_->rank())]) {}

Tensor PipelineRunner::run(const StageForward& forward, const HiddenStates& hidden) const {
  TI_ASSERT(backward_ == c10::GradMode::is_enabled(), "the table has {} backwards", backward_ ? "" : "no");
  return Pass(*this, forward, hidden).run();
}

}  // namespace titanium::parallel
