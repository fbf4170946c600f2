// The training step of an image model alone: no encoders, no data; latents, texts and targets are random and stay on
// the device.
//
//   bench_image_step PIXELS TEXT_TOKENS STEPS [OPTIONS]     OPTIONS are those of titanium train
//
// Prints one line of JSON: images per second (median of the steps after the first three) and GiB reserved at the peak.
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "titanium/config/reading/load_config.h"
#include "titanium/models/image_model.h"
#include "titanium/models/registry.h"
#include "titanium/ops/modulation.h"
#include "titanium/tensor/gpu_backend.h"
#include "titanium/train/report/memory_monitor.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

struct Sizes {
  int64_t pixels, text;
};
Sizes sizes_of_run;

class RandomBatch : public Batch, public MicroBatch {
 public:
  RandomBatch(models::ImageModel& model, int64_t samples, Device device) : model_(model) {
    const int64_t side = sizes_of_run.pixels / 16, columns = 4 * model.autoencoder().latent_channels;
    const auto random = [&](at::IntArrayRef shape) {
      return at::randn(shape, at::TensorOptions(model.compute_dtype).device(device));
    };
    inputs_ = {.latents_BSP = random({samples, side * side, columns}),
               .text_BLC = random({samples, sizes_of_run.text, model.text_width()}),
               .pooled_BY = random({samples, model.pooled_width()}),
               .times_B = at::rand({samples}, at::TensorOptions(at::kFloat).device(device)),
               .rows = side,
               .columns = side,
               .text_tokens = sizes_of_run.text};
    target_ = random({samples, side * side, columns});
  }
  int64_t samples() const override { return target_.size(0); }
  int64_t tokens() const override { return samples() * (inputs_.rows * inputs_.columns + inputs_.text_tokens); }
  int64_t weight() const override { return target_.numel(); }
  std::unique_ptr<MicroBatch> to_device(int64_t, int64_t) const override {
    return std::make_unique<RandomBatch>(*this);
  }
  ops::Tensors run_stage(const models::ModelStage&, const ops::Tensors&, double scale) const override {
    return {ops::squared_error(model_.velocity(inputs_), target_, scale)};
  }
  std::vector<parallel::HiddenStates> hidden_states() const override { return {}; }

 private:
  models::ImageModel& model_;
  models::ImageBatch inputs_;
  Tensor target_;
};

// The same batch again and again.
class RandomSource : public BatchSource {
 public:
  RandomSource(models::ImageModel& model, int64_t samples, Device device) : batch_(model, samples, device) {}
  BatchPtr next() override { return std::make_unique<const RandomBatch>(batch_); }
  double last_wait_seconds() const override { return 0; }
  BatchPtr weightless() const override { return nullptr; }
  void rewind() override {}
  std::string position() const override { return ""; }
  std::string merge_positions(const std::vector<std::string>&) const override { return ""; }
  void load(const std::string&) override {}

 private:
  RandomBatch batch_;
};

class RandomTask : public Task {
 public:
  explicit RandomTask(const TaskContext& context)
      : model_(models::as_image_model(context.model)),
        samples_(context.config.training.local_batch_size),
        device_(context.device) {}
  std::unique_ptr<BatchSource> training_data() const override {
    return std::make_unique<RandomSource>(model_, samples_, device_);
  }
  std::unique_ptr<BatchSource> validation_data() const override { return nullptr; }
  double flops_per_token() const override { return 1; }

 private:
  models::ImageModel& model_;
  int64_t samples_;
  Device device_;
};

TaskSpec random_task() {
  return {
      .name = "random images",
      .make = [](const TaskContext& context) -> std::unique_ptr<Task> { return std::make_unique<RandomTask>(context); },
      .check_files = nullptr,
      .tokens_of_sample =
          [](const JobConfig&, const models::Model&) {
            return (sizes_of_run.pixels / 16) * (sizes_of_run.pixels / 16) + sizes_of_run.text;
          }};
}

void measure(const JobConfig& config, int64_t steps) {
  choose_gpu_allocator();
  const Device device = parse_device(config.training.device, /*local_rank=*/0);
  auto model = models::build_model(config, std::nullopt);
  models::TrainingDefaults defaults = models::find_model(config.model.name).training;
  ModelPlan plan = plan_model(config, 1, 0, std::move(model), defaults);
  plan.task = random_task();
  const MemoryMonitor monitor(device);
  TrainState run = build_train_state(config, device, nullptr, std::move(plan));
  std::vector<double> seconds;
  for (int64_t step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    train_step(run);
    if (device.is_cuda()) synchronize_gpu();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (step >= 3) seconds.push_back(taken.count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  const double images = static_cast<double>(config.training.local_batch_size) / seconds.at(seconds.size() / 2);
  std::cout << fmt::format(R"({{"images_per_s": {:.3f}, "memory_gib": {:.2f}}})", images,
                           monitor.peak().max_reserved_gib)
            << std::endl;
}

}  // namespace
}  // namespace titanium::train

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  titanium::train::sizes_of_run = {std::stoll(arguments.at(0)), std::stoll(arguments.at(1))};
  const auto loaded = titanium::config::load_config(std::span(arguments).subspan(3));
  titanium::train::measure(loaded.config, std::stoll(arguments.at(2)));
}
