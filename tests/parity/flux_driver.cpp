// Runs Flux and its encoders for parity/flux.py.
//
//   flux_driver names FLAVOR                                  prints every parameter with its shape
//   flux_driver velocity CONFIG WEIGHTS IN OUT LEVEL          CONFIG: config.json of diffusers
//       IN: latents [B, S, P], text [B, L, C], pooled [B, Y], times [B], target [B, S, P], grid (rows, columns)
//       OUT: velocity, loss (sum of squares), grad.FQN
//   flux_driver train CONFIG WEIGHTS IN OUT [OPTIONS]         as titanium train, on what IN has of each step
//       IN: as above, each with a first dim of steps; OUT: loss and grad_norm [steps], FQN of the last weights
//   flux_driver encode t5|clip FOLDER IN OUT                  IN: tokens [B, L]; OUT: encoded
//   flux_driver autoencode WEIGHTS CHANNELS IN OUT            IN: images, noise, latents; OUT: encoded, decoded
#include <ATen/ops/tensor.h>

#include <iostream>

#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/models/encoders/autoencoder.h"
#include "titanium/models/encoders/text_encoder.h"
#include "titanium/models/flux/model.h"
#include "titanium/models/model_weights.h"
#include "titanium/models/registry.h"
#include "titanium/train/train_step.h"

namespace titanium::models::flux {
namespace {

using checkpoint::NamedTensor;

void print_names(const std::string& flavor) {
  const Flux model(flavors().at(flavor));
  for (const Parameter* parameter : model.parameters()) {
    std::cout << parameter->fqn;
    for (const int64_t size : parameter->global_shape) std::cout << ' ' << size;
    std::cout << '\n';
  }
}

void write_velocity(const std::vector<std::string>& arguments) {
  Flux model(args_from_config_json(arguments[1]));
  model.materialize(at::kFloat, at::kCPU);
  model.build_buffers(at::kCPU);
  load_hugging_face_weights(model, arguments[2], false);
  for (int64_t i = 0; i < model.block_count(); ++i) model.block(i)->level = std::stoul(arguments[5]);
  const checkpoint::SafetensorsReader in(arguments[3]);
  const Tensor grid = in.tensor("grid"), text = in.tensor("text");
  const Tensor velocity = model.velocity({.latents_BSP = in.tensor("latents"),
                                          .text_BLC = text,
                                          .pooled_BY = in.tensor("pooled"),
                                          .times_B = in.tensor("times"),
                                          .rows = grid[0].item<int64_t>(),
                                          .columns = grid[1].item<int64_t>(),
                                          .text_tokens = text.size(1)});
  const Tensor loss = ops::squared_error(velocity, in.tensor("target"), 1.0);
  loss.backward();
  std::vector<NamedTensor> results = {{"velocity", velocity.detach()}, {"loss", loss.detach()}};
  for (const Parameter* parameter : model.parameters()) {
    if (parameter->grad.defined()) results.push_back({"grad." + parameter->fqn, parameter->grad});
  }
  checkpoint::write_safetensors(arguments[4], results);
}

void write_encoded(const std::vector<std::string>& arguments) {
  const std::filesystem::path folder = arguments[2];
  const bool is_clip = arguments[1] == "clip";
  const FrozenWeights weights = read_frozen_weights(folder, at::kFloat, at::kCPU, is_clip ? "text_model." : "");
  const EncoderConfig config = read_encoder_config(folder / "config.json");
  const auto encoder = is_clip ? make_clip_encoder(config, weights) : make_t5_encoder(config, weights);
  const checkpoint::SafetensorsReader in(arguments[3]);
  const std::vector<NamedTensor> results = {{"encoded", encoder->encode(in.tensor("tokens"))}};
  checkpoint::write_safetensors(arguments[4], results);
}

void write_autoencoded(const std::vector<std::string>& arguments) {
  AutoencoderArgs args;
  args.channels = std::stoll(arguments[2]);
  const Autoencoder autoencoder(args, read_frozen_weights(arguments[1], at::kFloat, at::kCPU));
  const checkpoint::SafetensorsReader in(arguments[3]);
  const std::vector<NamedTensor> results = {{"encoded", autoencoder.encode(in.tensor("images"), in.tensor("noise"))},
                                            {"decoded", autoencoder.decode(in.tensor("latents"))}};
  checkpoint::write_safetensors(arguments[4], results);
}

// What the file has of each step; weighs as many values as the velocity has.
class GivenBatch : public train::Batch, public train::MicroBatch {
 public:
  GivenBatch(Flux& model, ImageBatch inputs, Tensor target)
      : model_(model), inputs_(std::move(inputs)), target_(std::move(target)) {}
  int64_t samples() const override { return target_.size(0); }
  int64_t tokens() const override { return samples(); }
  int64_t weight() const override { return target_.numel(); }
  std::unique_ptr<train::MicroBatch> to_device(int64_t, int64_t) const override {
    return std::make_unique<GivenBatch>(model_, inputs_, target_);
  }
  ops::Tensors run_stage(const ModelStage&, const ops::Tensors&, double scale) const override {
    return {ops::squared_error(model_.velocity(inputs_), target_, scale)};
  }
  std::vector<parallel::HiddenStates> hidden_states() const override { return {}; }

 private:
  Flux& model_;
  ImageBatch inputs_;
  Tensor target_;
};

ImageBatch inputs_of(const checkpoint::SafetensorsReader& in, int64_t step) {
  const Tensor grid = in.tensor("grid"), text = in.tensor("text")[step];
  return {.latents_BSP = in.tensor("latents")[step],
          .text_BLC = text,
          .pooled_BY = in.tensor("pooled")[step],
          .times_B = in.tensor("times")[step],
          .rows = grid[0].item<int64_t>(),
          .columns = grid[1].item<int64_t>(),
          .text_tokens = text.size(1)};
}

class GivenSource : public train::BatchSource {
 public:
  GivenSource(Flux& model, const std::string& file) : model_(model), in_(file) {}
  train::BatchPtr next() override {
    const int64_t step = step_++;
    return std::make_unique<const GivenBatch>(model_, inputs_of(in_, step), in_.tensor("target")[step]);
  }
  double last_wait_seconds() const override { return 0; }
  train::BatchPtr weightless() const override { return nullptr; }
  void rewind() override {}
  std::string position() const override { return ""; }
  std::string merge_positions(const std::vector<std::string>&) const override { return ""; }
  void load(const std::string&) override {}

 private:
  Flux& model_;
  checkpoint::SafetensorsReader in_;
  int64_t step_ = 0;
};

// The task without data, which is given afterwards.
class NoData : public train::Task {
 public:
  std::unique_ptr<train::BatchSource> training_data() const override { return nullptr; }
  std::unique_ptr<train::BatchSource> validation_data() const override { return nullptr; }
  double flops_per_token() const override { return 1; }
};

void write_training(const std::vector<std::string>& arguments) {
  const JobConfig config = config::load_config(std::span(arguments).subspan(5)).config;
  train::ModelPlan plan = train::plan_model(config, 1, 0, std::make_unique<Flux>(args_from_config_json(arguments[1])));
  plan.task = {.name = "given", .make = [](const train::TaskContext&) -> std::unique_ptr<train::Task> {
                 return std::make_unique<NoData>();
               }};
  train::TrainState run = train::build_train_state(config, at::kCPU, nullptr, std::move(plan));
  load_hugging_face_weights(*run.model, arguments[2], false);
  run.data = std::make_unique<GivenSource>(dynamic_cast<Flux&>(*run.model), arguments[3]);
  std::vector<double> losses, norms;
  while (run.step < config.training.steps) {
    const train::StepReport report = train::train_step(run).value();
    losses.push_back(report.loss.item<double>());
    norms.push_back(report.grad_norm.item<double>());
  }
  std::vector<NamedTensor> results = {{"loss", at::tensor(losses, at::kDouble)},
                                      {"grad_norm", at::tensor(norms, at::kDouble)}};
  for (const Parameter* parameter : run.parameters) results.push_back({parameter->fqn, parameter->value.detach()});
  checkpoint::write_safetensors(arguments[4], results);
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "names" && arguments.size() == 2) {
    print_names(arguments[1]);
  } else if (command == "velocity" && arguments.size() == 6) {
    write_velocity(arguments);
  } else if (command == "train" && arguments.size() >= 5) {
    write_training(arguments);
  } else if (command == "encode" && arguments.size() == 5) {
    write_encoded(arguments);
  } else if (command == "autoencode" && arguments.size() == 5) {
    write_autoencoded(arguments);
  } else {
    std::cerr << "usage: see the head of flux_driver.cpp\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace titanium::models::flux

int main(int argc, char** argv) { return titanium::models::flux::run({argv + 1, argv + argc}); }
