#include "titanium/train/task/image_batch.h"

#include <c10/core/GradMode.h>

#include <cmath>

#include "titanium/base/error.h"
#include "titanium/kernels/counter_random.h"
#include "titanium/ops/counter_normal.h"
#include "titanium/ops/init.h"
#include "titanium/ops/modulation.h"
#include "titanium/tensor/host_copy.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::train {
namespace {

constexpr int64_t kPatch = 2;  // elements of the latents on a side of a patch

double middle_of_stratum(int64_t i) {
  return (static_cast<double>(i % kTimeStrata) + 0.5) / static_cast<double>(kTimeStrata);
}

// The time at which a sample is seen, where it is seen once.
double time_of(int64_t number, FlowTimes times, uint64_t key) {
  const auto index = static_cast<uint64_t>(number);
  if (times == FlowTimes::kUniform) return kernels::random_uniform(key, index);
  if (times == FlowTimes::kStratified) return middle_of_stratum(number);
  const double logit = kernels::sample_normal(kernels::truncated_normal(/*std=*/1, /*cutoff=*/8), key, index);
  return 1 / (1 + std::exp(-logit));
}

// [n], or [8 n] with all times of each sample one after the other.
Tensor times_of(const std::vector<int64_t>& numbers, const ImagePlace& place) {
  const uint64_t key = ops::parameter_key("flow.times", place.seed);
  std::vector<float> times;
  for (const int64_t number : numbers) {
    if (place.times == FlowTimes::kAll) {
      for (int64_t i = 0; i < kTimeStrata; ++i) times.push_back(static_cast<float>(middle_of_stratum(i)));
    } else {
      times.push_back(static_cast<float>(time_of(number, place.times, key)));
    }
  }
  return copy_to_device(times, place.device);
}

class ImageBatchOfTask : public Batch {
 public:
  ImageBatchOfTask(data::ImageBatch batch, const ImagePlace& place) : batch_(std::move(batch)), place_(place) {}

  int64_t samples() const override { return batch_.samples; }
  int64_t tokens() const override {
    return batch_.samples * (place_.patches(batch_.size) + text_tokens(batch_, place_.model));
  }
  int64_t weight() const override {
    const int64_t times = place_.times == FlowTimes::kAll ? kTimeStrata : 1;
    return batch_.count * times * place_.values_here(batch_.size);
  }
  std::unique_ptr<MicroBatch> to_device(int64_t first, int64_t count) const override {
    TI_ASSERT(first == 0 && count == batch_.samples, "a model of one stage gets whole batches");
    return std::make_unique<ImageMicroBatch>(batch_, place_);
  }

 private:
  data::ImageBatch batch_;
  const ImagePlace& place_;
};

}  // namespace

int64_t ImagePlace::patches(int64_t pixels) const {
  const int64_t side = pixels / (model.autoencoder().pixels() * kPatch);
  return side * side;
}

int64_t ImagePlace::values_here(int64_t pixels) const {
  return patches(pixels) / share.ranks * kPatch * kPatch * model.autoencoder().latent_channels;
}

ImageMicroBatch::ImageMicroBatch(const data::ImageBatch& batch, const ImagePlace& place) : model_(place.model) {
  const TraceScope scope("encoders");
  const c10::AutoGradMode no_grad(false);
  const models::AutoencoderArgs& args = place.model.autoencoder();
  const int64_t n = batch.samples, side = batch.size / args.pixels();
  const auto noise_of = [&](const char* name) {
    const int64_t elements = args.latent_channels * side * side;
    return ops::counter_normal(ops::parameter_key(name, place.seed), batch.numbers, elements, place.device)
        .view({n, args.latent_channels, side, side});
  };
  const Tensor times = times_of(batch.numbers, place), t = times.view({-1, 1, 1, 1});
  auto [captions, moments] = encode_images(batch, place.encoders, place.model, place.device);
  auto& [text, pooled] = captions;
  Tensor latents = models::Autoencoder::sampled(moments, noise_of("autoencoder.noise"), args).to(at::kFloat);
  Tensor noise = noise_of("flow.noise");
  counted_ = batch.count;
  if (place.times == FlowTimes::kAll) {
    for (Tensor* x : {&text, &pooled, &latents, &noise}) *x = x->repeat_interleave(kTimeStrata, 0);
    counted_ *= kTimeStrata;
  }
  const auto rows_here = [&](const Tensor& x) { return ops::share_of(x, 1, place.share); };
  inputs_ = {.latents_BSP = rows_here(models::pack_latents(latents * (1 - t) + noise * t)),
             .text_BLC = rows_here(text),
             .pooled_BY = pooled,
             .times_B = times,
             .rows = side / kPatch,
             .columns = side / kPatch,
             .text_tokens = text.size(1)};
  target_BSP_ = rows_here(models::pack_latents(noise - latents));
}

ops::Tensors ImageMicroBatch::run_stage(const models::ModelStage&, const ops::Tensors&, double scale) const {
  const Tensor velocity_BSP = model_.velocity(inputs_);
  return {ops::squared_error(velocity_BSP.narrow(0, 0, counted_), target_BSP_.narrow(0, 0, counted_), scale)};
}

std::vector<parallel::HiddenStates> ImageMicroBatch::hidden_states() const { return {}; }

BatchPtr make_image_batch(data::ImageBatch batch, const ImagePlace& place) {
  return std::make_unique<const ImageBatchOfTask>(std::move(batch), place);
}

}  // namespace titanium::train
