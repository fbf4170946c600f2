// Runs decoders for parity/llama.py and its like (tests/support/decoder_parity.py).
//
//   decoder_driver gradients CHECKPOINT IN.safetensors OUT.safetensors [OPTIONS]   IN: tokens and labels [B, S]
//       IN may have positions [B, S], which are 0 where documents start
//       OUT: logits, loss (summed over tokens), grad.FQN
//   decoder_driver train STEPS OUT.safetensors [OPTIONS]
//       OUT: initial.FQN, tokens and labels [steps, B, S], loss and grad_norm [steps], grad.FQN of the last step
//
// OPTIONS are those of `titanium train`.
#include <ATen/ops/nonzero.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <iostream>

#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/train/inference/load_model.h"
#include "titanium/train/task/text_data.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

using checkpoint::NamedTensor;

void append_gradients(const std::vector<Parameter*>& parameters, std::vector<NamedTensor>& results) {
  for (const Parameter* parameter : parameters) {
    if (parameter->grad.defined()) results.push_back({"grad." + parameter->fqn, parameter->grad});
  }
}

ops::DocumentsPtr documents_at_zeros(const Tensor& positions_BS) {
  const Tensor starts = at::nonzero(positions_BS.flatten() == 0).flatten().to(at::kInt);
  return ops::make_documents({starts.const_data_ptr<int32_t>(), static_cast<size_t>(starts.numel())},
                             positions_BS.size(0), positions_BS.size(1), at::kCPU);
}

void write_gradients(const std::string& checkpoint, const std::string& in, const std::string& out,
                     std::span<const std::string> options) {
  const checkpoint::SafetensorsReader reader(in);
  const Tensor tokens_BS = reader.tensor("tokens"), labels_BS = reader.tensor("labels");
  const CheckpointRun run = plan_checkpoint_run(config::load_config(options), checkpoint);
  const auto model = load_model(run, tokens_BS.size(1), at::kCPU);
  models::TokenBatch batch{tokens_BS, nullptr};
  if (reader.contains("positions")) batch.positions_BS = reader.tensor("positions");
  if (model->attends_inside_documents()) batch.documents = documents_at_zeros(batch.positions_BS);
  const Tensor loss = model->loss(batch, labels_BS, 1.0);
  loss.backward();
  const c10::AutoGradMode no_grad(false);
  std::vector<NamedTensor> results = {{"loss", loss.detach()}, {"logits", models::decoding_of(*model).logits(batch)}};
  append_gradients(model->parameters(), results);
  checkpoint::write_safetensors(out, results);
}

void train_steps(int steps, const std::string& out, std::span<const std::string> options) {
  const JobConfig config = config::load_config(options).config;
  TrainState run = build_train_state(config, at::kCPU);
  std::vector<NamedTensor> results;
  for (const Parameter* parameter : run.parameters) {
    results.push_back({"initial." + parameter->fqn, parameter->value.detach().clone()});
  }
  const auto same_data = build_loader(config.training, data::Tokenizer::load(config.model.hf_assets_path));
  std::vector<Tensor> tokens, labels;
  std::vector<double> losses, norms;
  for (int step = 0; step < steps; ++step) {
    const data::Batch batch = same_data->next().value();
    tokens.push_back(at::tensor(batch.inputs, at::kLong).view({-1, batch.seq_len}));
    labels.push_back(at::tensor(batch.labels, at::kLong).view({-1, batch.seq_len}));
    const StepReport report = train_step(run).value();
    losses.push_back(report.loss.item<double>());
    norms.push_back(report.grad_norm.item<double>());
  }
  if (steps > 0) {
    results.push_back({"tokens", at::stack(tokens)});
    results.push_back({"labels", at::stack(labels)});
    results.push_back({"loss", at::tensor(losses, at::kDouble)});
    results.push_back({"grad_norm", at::tensor(norms, at::kDouble)});
    append_gradients(run.parameters, results);
  }
  checkpoint::write_safetensors(out, results);
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "gradients" && arguments.size() >= 4) {
    write_gradients(arguments[1], arguments[2], arguments[3], std::span(arguments).subspan(4));
  } else if (command == "train" && arguments.size() >= 3) {
    train_steps(std::stoi(arguments[1]), arguments[2], std::span(arguments).subspan(3));
  } else {
    std::cerr << "usage: see the head of decoder_driver.cpp\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace titanium::train

int main(int argc, char** argv) { return titanium::train::run({argv + 1, argv + argc}); }
