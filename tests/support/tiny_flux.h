// A tiny Flux with tiny frozen encoders, and samples that follow from their numbers.
#pragma once

#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"
#include "titanium/models/flux/model.h"
#include "titanium/train/task/image_batch.h"

namespace titanium::test {

constexpr int64_t kTinyPixels = 32, kTinyTextTokens = 8;

inline models::flux::Args tiny_flux() {
  models::flux::Args args;
  args.in_channels = 4 * 4;
  args.vec_in_dim = 8;
  args.context_in_dim = 12;
  args.hidden_size = 32;
  args.num_heads = 2;
  args.depth = 2;
  args.depth_single_blocks = 2;
  args.axes_dim = {4, 6, 6};
  args.autoencoder.channels = 8;
  args.autoencoder.groups = 4;
  args.autoencoder.latent_channels = 4;
  return args;
}

inline train::ImageEncoders tiny_encoders(const models::AutoencoderArgs& autoencoder) {
  const auto folder = test_folder();
  write_file_atomically(folder / "t5.json",
                        R"({"vocab_size": 50, "d_model": 12, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2})");
  write_file_atomically(folder / "clip.json",
                        R"({"vocab_size": 50, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
                            "num_attention_heads": 2, "eos_token_id": 49})");
  const auto weights = models::random_frozen_weights(7, at::kFloat, at::kCPU);
  train::ImageEncoders encoders;
  encoders.text = models::make_t5_encoder(models::read_encoder_config(folder / "t5.json"), weights);
  encoders.pooled = models::make_clip_encoder(models::read_encoder_config(folder / "clip.json"), weights);
  encoders.autoencoder = std::make_unique<models::Autoencoder>(autoencoder, weights);
  return encoders;
}

// A batch of `samples` rows, of which those of `numbers` count.
inline data::ImageBatch tiny_images(std::vector<int64_t> numbers, int64_t samples) {
  data::ImageBatch batch;
  batch.samples = samples;
  batch.count = static_cast<int64_t>(numbers.size());
  batch.size = kTinyPixels;
  batch.pixels.assign(static_cast<size_t>(samples * 3 * kTinyPixels * kTinyPixels), 0);
  batch.tokens.assign(2, std::vector<int32_t>(static_cast<size_t>(samples * kTinyTextTokens), 0));
  numbers.resize(static_cast<size_t>(samples), 0);
  for (int64_t row = 0; row < batch.count; ++row) {
    const int64_t number = numbers[static_cast<size_t>(row)], values = 3 * kTinyPixels * kTinyPixels;
    for (int64_t i = 0; i < values; ++i)
      batch.pixels[row * values + i] = static_cast<uint8_t>((i * (number + 3)) % 251);
    for (int64_t i = 0; i < kTinyTextTokens; ++i) {
      for (auto& tokens : batch.tokens) tokens[row * kTinyTextTokens + i] = static_cast<int32_t>((7 * i + number) % 49);
    }
  }
  batch.numbers = std::move(numbers);
  return batch;
}

}  // namespace titanium::test
