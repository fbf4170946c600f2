// A tiny Flux, its encoders, its autoencoder and what it draws on the GPU against the CPU in fp32, from the same
// weights and inputs; and noise, bit by bit.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "tests/gpu/gpu_test.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_flux.h"
#include "titanium/models/encoders/text_encoder.h"
#include "titanium/models/flux/model.h"
#include "titanium/ops/counter_normal.h"
#include "titanium/ops/init.h"
#include "titanium/train/inference/draw_images.h"

namespace titanium::models::flux {
namespace {

using GpuFlux = test::GpuTest;
using test::mean_error;
using test::random_tensor;

Args larger() {
  Args args = test::tiny_flux();
  args.hidden_size = 128;
  args.axes_dim = {16, 24, 24};
  return args;
}

ops::Tensors results(const ImageBatch& batch, const Tensor& target, Device device, Dtype dtype) {
  Flux model(larger());
  model.compute_dtype = dtype;
  model.materialize(at::kFloat, device);
  model.build_buffers(device);
  for (Parameter* parameter : model.parameters()) {  // all of them, so that gates and the last layer do something
    ops::init_normal(*parameter, 3, parameter->fqn.ends_with("_norm.weight") ? 1.0 : 0.1, 1e6);
  }
  ImageBatch here = batch;
  for (Tensor* x : {&here.latents_BSP, &here.text_BLC, &here.pooled_BY, &here.times_B}) *x = x->to(device);
  const Tensor velocity = model.velocity(here);
  ops::squared_error(velocity, target.to(device), 1.0).backward();
  ops::Tensors found = {velocity.detach().to(at::kCPU, at::kFloat)};
  for (const Parameter* parameter : model.parameters()) found.push_back(parameter->grad.to(at::kCPU));
  return found;
}

TEST_F(GpuFlux, VelocityAndGradientsAreThoseOfTheCpu) {
  const int64_t columns = larger().in_channels;
  const ImageBatch batch{.latents_BSP = random_tensor({2, 12, columns}),
                         .text_BLC = random_tensor({2, 8, 12}),
                         .pooled_BY = random_tensor({2, 8}),
                         .times_B = random_tensor({2}).abs().clamp(0, 1),
                         .rows = 3,
                         .columns = 4,
                         .text_tokens = 8};
  const Tensor target = random_tensor({2, 12, columns});
  const ops::Tensors expected = results(batch, target, at::kCPU, at::kFloat);
  // Gradients of norms of queries and keys have few terms, so that their errors depend on the random numbers.
  for (const auto& [dtype, limit] : {std::pair{at::kFloat, 1e-4}, std::pair{at::kBFloat16, 1e-1}}) {
    const ops::Tensors found = results(batch, target, gpu_, dtype);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(mean_error(found[i], expected[i]), limit) << i;
  }
}

constexpr std::pair<Dtype, double> kLimits[] = {{at::kFloat, 1e-4}, {at::kBFloat16, 6e-2}};

EncoderConfig t5_sizes() {
  return {"t5",
          {{"vocab_size", 50},
           {"d_model", 32},
           {"d_kv", 16},
           {"d_ff", 48},
           {"num_layers", 2},
           {"num_heads", 2},
           {"feed_forward_proj", "gated-gelu"}}};
}

EncoderConfig clip_sizes() {
  return {"clip",
          {{"vocab_size", 50},
           {"hidden_size", 32},
           {"intermediate_size", 64},
           {"num_hidden_layers", 2},
           {"num_attention_heads", 2},
           {"eos_token_id", 49}}};
}

TEST_F(GpuFlux, EncodersOfCaptionsAreThoseOfTheCpu) {
  // 13 tokens, so that rows of T5's bias do not begin at aligned addresses, and 16, so that they do.
  for (const int64_t tokens : {13, 16}) {
    const Tensor ids = at::arange(3 * tokens, at::kLong).remainder(49).view({3, tokens});
    const auto encoded = [&](Device device, Dtype dtype) -> ops::Tensors {
      const FrozenWeights weights = random_frozen_weights(7, dtype, device);
      return {make_t5_encoder(t5_sizes(), weights)->encode(ids.to(device)).to(at::kCPU, at::kFloat),
              make_clip_encoder(clip_sizes(), weights)->encode(ids.to(device)).to(at::kCPU, at::kFloat)};
    };
    const ops::Tensors expected = encoded(at::kCPU, at::kFloat);
    for (const auto& [dtype, limit] : kLimits) {
      const ops::Tensors found = encoded(gpu_, dtype);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(mean_error(found[i], expected[i]), limit) << i;
    }
  }
}

TEST_F(GpuFlux, TheAutoencoderIsThatOfTheCpu) {
  AutoencoderArgs args = larger().autoencoder;
  args.channels = 32;
  const Tensor images = random_tensor({2, 3, 32, 48}).clamp(-1, 1);
  const Tensor latents = random_tensor({2, args.latent_channels, 4, 6}), noise = random_tensor(latents.sizes().vec());
  const auto results_on = [&](Device device, Dtype dtype) -> ops::Tensors {
    const Autoencoder autoencoder(args, random_frozen_weights(7, dtype, device));
    return {autoencoder.encode(images.to(device), noise.to(device)).to(at::kCPU, at::kFloat),
            autoencoder.decode(latents.to(device)).to(at::kCPU, at::kFloat)};
  };
  const ops::Tensors expected = results_on(at::kCPU, at::kFloat);
  for (const auto& [dtype, limit] : kLimits) {
    const ops::Tensors found = results_on(gpu_, dtype);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(mean_error(found[i], expected[i]), limit) << i;
  }
}

TEST_F(GpuFlux, DrawnImagesAreThoseOfTheCpu) {
  Args args = larger();
  args.autoencoder.channels = 32;
  const Tensor text = random_tensor({2, 8, args.context_in_dim}), pooled = random_tensor({2, args.vec_in_dim});
  const Tensor no_text = random_tensor({1, 8, args.context_in_dim}), no_pooled = random_tensor({1, args.vec_in_dim});
  const auto drawn = [&](Device device, Dtype dtype) {
    Flux model(args);
    model.compute_dtype = dtype;
    model.materialize(at::kFloat, device);
    model.build_buffers(device);
    for (Parameter* parameter : model.parameters()) {
      ops::init_normal(*parameter, 3, parameter->fqn.ends_with("_norm.weight") ? 1.0 : 0.1, 1e6);
    }
    const Autoencoder autoencoder(args.autoencoder, random_frozen_weights(7, dtype, device));
    const train::DrawnCaptions captions{{text.to(device, dtype), pooled.to(device, dtype)},
                                        {no_text.to(device, dtype), no_pooled.to(device, dtype)},
                                        {3, 9}};
    const train::DrawOptions options{.pixels = 32, .steps = 3, .guidance = 2.5, .seed = 5};
    return train::draw_images(model, autoencoder, captions, options, device).to(at::kCPU);
  };
  const Tensor expected = drawn(at::kCPU, at::kFloat);
  for (const auto& [dtype, limit] : kLimits) EXPECT_LT(mean_error(drawn(gpu_, dtype), expected), limit);
}

TEST_F(GpuFlux, NoiseHasTheSameBits) {
  const std::vector<int64_t> rows = {5, 0, 1234567};
  EXPECT_TRUE(at::equal(ops::counter_normal(9, rows, 1000, gpu_).cpu(), ops::counter_normal(9, rows, 1000, at::kCPU)));
}

}  // namespace
}  // namespace titanium::models::flux
