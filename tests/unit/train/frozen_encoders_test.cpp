// Encoders that are cut over ranks, and what encoders take of a device.
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "tests/support/threaded_ranks.h"
#include "tests/support/tiny_flux.h"
#include "titanium/base/error.h"
#include "titanium/models/registry.h"
#include "titanium/parallel/parallel_dims.h"
#include "titanium/train/host_memory.h"
#include "titanium/train/task/encode_images.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

models::EncoderConfig t5_sizes(int64_t layers, const char* feed_forward) {
  return {"t5",
          {{"vocab_size", 50},
           {"d_model", 12},
           {"d_kv", 5},
           {"d_ff", 17},
           {"num_layers", layers},
           {"num_heads", 2},
           {"feed_forward_proj", feed_forward}}};
}

TEST(FrozenEncoders, ACutT5GivesTheSameBits) {
  const Tensor tokens = at::arange(14, at::kLong).view({2, 7});
  const auto weights = models::random_frozen_weights(7, at::kFloat, at::kCPU);
  for (const char* feed_forward : {"relu", "gated-gelu"}) {
    const models::EncoderConfig sizes = t5_sizes(3, feed_forward);
    const Tensor whole = models::make_t5_encoder(sizes, weights)->encode(tokens);
    for (const int ranks : {2, 3}) {
      test::run_ranks(ranks, [&](comm::World& world) {
        std::vector<int> all;
        for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
        const auto group = world.group("fsdp", all);
        const auto cut = models::make_t5_encoder(sizes, weights, models::keep_shards(group));
        EXPECT_TRUE(cut->encode(tokens).equal(whole));
        EXPECT_TRUE(cut->encode(tokens).equal(whole));  // and again
        group->barrier();
      });
    }
  }
}

// Says how many captions the encoder was asked for.
class CountingEncoder : public models::TextEncoder {
 public:
  CountingEncoder(std::unique_ptr<models::TextEncoder> encoder, int64_t& captions)
      : encoder_(std::move(encoder)), captions_(captions) {}
  Tensor encode(const Tensor& tokens_BL) const override {
    captions_ += tokens_BL.size(0);
    return encoder_->encode(tokens_BL);
  }
  int64_t width() const override { return encoder_->width(); }
  int64_t vocabulary() const override { return encoder_->vocabulary(); }
  Device device() const override { return encoder_->device(); }

 private:
  std::unique_ptr<models::TextEncoder> encoder_;
  int64_t& captions_;
};

TEST(FrozenEncoders, EqualCaptionsOfABatchAreEncodedOnce) {
  int64_t texts = 0, pooled = 0;
  ImageEncoders encoders = test::tiny_encoders(test::tiny_flux().autoencoder);
  const ImageEncoders alone = test::tiny_encoders(test::tiny_flux().autoencoder);
  encoders.text = std::make_unique<CountingEncoder>(std::move(encoders.text), texts);
  encoders.pooled = std::make_unique<CountingEncoder>(std::move(encoders.pooled), pooled);
  const std::vector<std::vector<int32_t>> captions = {{7, 8, 1}, {0, 0, 1}, {5, 8, 1}, {0, 0, 1}, {0, 0, 1}, {7, 8, 1}};
  std::vector<int32_t> tokens;
  for (const auto& caption : captions) tokens.insert(tokens.end(), caption.begin(), caption.end());
  const EncodedCaptions found = encode_captions(encoders, {tokens, tokens}, 6, at::kCPU);
  EXPECT_EQ(texts, 3);
  EXPECT_EQ(pooled, 3);
  for (int64_t i = 0; i < 6; ++i) {
    const std::vector<int32_t>& caption = captions[static_cast<size_t>(i)];
    const EncodedCaptions expected = encode_captions(alone, {caption, caption}, 1, at::kCPU);
    EXPECT_TRUE(found.text_BLC[i].allclose(expected.text_BLC[0], 1e-5, 1e-6)) << i;
    EXPECT_TRUE(found.pooled_BY[i].allclose(expected.pooled_BY[0], 1e-5, 1e-6)) << i;
  }
}

std::string complaint(const std::function<void()>& part) {
  try {
    part();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FrozenEncoders, SizesOfAnAutoencoderComeFromThePipelinesFolder) {
  const auto folder = test::test_folder();
  const auto write_sizes = [&](const std::string& sizes) { write_file_atomically(folder / "vae/config.json", sizes); };
  write_file_atomically(folder / "transformer/config.json",
                        R"({"attention_head_dim": 32, "num_attention_heads": 2, "in_channels": 12,
                            "pooled_projection_dim": 8, "joint_attention_dim": 8, "num_layers": 1,
                            "num_single_layers": 1, "axes_dims_rope": [8, 12, 12]})");
  config::Model options;
  options.name = "flux";
  options.flavor = "auto";
  options.hf_assets_path = folder.string();
  JobConfig config;
  config.model = options;
  const auto build = [&] { return models::build_model(config, std::nullopt); };
  write_sizes(R"({"block_out_channels": [16, 32], "latent_channels": 3, "layers_per_block": 1, "norm_num_groups": 8,
                  "scaling_factor": 2.5, "shift_factor": -0.5})");
  const auto model = build();
  const models::AutoencoderArgs& args = models::as_image_model(*model).autoencoder();
  EXPECT_EQ(args.channels, 16);
  EXPECT_EQ(args.multipliers, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(args.residual_blocks, 1);
  EXPECT_EQ(args.groups, 8);
  EXPECT_EQ(args.scale, 2.5);
  EXPECT_EQ(args.shift, -0.5);
  EXPECT_EQ(models::as_image_model(*model).patch_pixels(), 4);
  for (const char* none : {"", R"(, "shift_factor": null)"}) {  // as diffusers writes it
    write_sizes(fmt::format(R"({{"block_out_channels": [32], "latent_channels": 3{}}})", none));
    EXPECT_EQ(models::as_image_model(*build()).autoencoder().shift, 0) << none;
  }
  const std::string vae = (folder / "vae/config.json").string();
  write_sizes(R"({"block_out_channels": [16, 24], "latent_channels": 3})");
  EXPECT_EQ(complaint(build),
            vae + ": block_out_channels is an array, but should be one to eight multiples of its first number.");
  write_sizes(R"({"block_out_channels": [16], "latent_channels": 3, "norm_num_groups": 5})");
  EXPECT_EQ(complaint(build),
            vae + ": norm_num_groups is 5, but should be a divisor of the first of block_out_channels.");
  write_sizes(R"({"block_out_channels": [32], "latent_channels": 4})");
  EXPECT_EQ(complaint(build),
            (folder / "transformer/config.json").string() +
                ": in_channels = 12 should be 16, a patch of 2 x 2 elements of the autoencoder's 4 channels. Use sizes "
                "that belong together.");
}

JobConfig flux_dev() {
  JobConfig config;
  config.model.name = "flux";
  config.model.flavor = "flux-dev";
  config.training.mixed_precision_param = "bfloat16";
  config.training.img_size = 256;
  config.training.local_batch_size = 4;
  config.encoder.t5_encoder = "google/t5-v1_1-xxl";
  config.encoder.clip_encoder = "openai/clip-vit-large-patch14";
  return config;
}

FrozenMemory memory_of(const JobConfig& config, int64_t ranks) {
  const auto model = models::build_model(config, std::nullopt);
  model->compute_dtype = compute_dtype(config);
  return image_encoder_memory(config, models::as_image_model(*model),
                              parallel::parallel_dims(config.parallelism, ranks));
}

// Parameters of the published networks, as their cards have them.
constexpr int64_t kT5 = 4'762'310'656, kClip = 123'060'480, kAutoencoder = 83'819'683;
constexpr int64_t kT5Block = 4 * 4096 * 4096 + 3 * 4096 * 10240 + 2 * 4096;

TEST(FrozenEncoders, ThePlanCountsThePublishedNetworks) {
  JobConfig config = flux_dev();
  const FrozenMemory whole = memory_of(config, 1);
  EXPECT_EQ(whole.weights, 2 * (kT5 + kClip + kAutoencoder));
  EXPECT_EQ(whole.working, int64_t{3} * 128 * 256 * 256 * 4 * 2);
  config.encoder.sharded = true;
  EXPECT_EQ(memory_of(config, 1).weights, whole.weights);
  const FrozenMemory cut = memory_of(config, 8);
  EXPECT_EQ(cut.weights, 2 * (kT5 - 24 * kT5Block + 3 * kT5Block + kClip + kAutoencoder));
  EXPECT_EQ(cut.working, whole.working + 2 * 2 * kT5Block);
  config.encoder.sharded = false;
  config.encoder.on_cpu = true;
  EXPECT_EQ(memory_of(config, 1).weights, 2 * kAutoencoder);
  EXPECT_EQ(memory_of(config, 1).on_host, 2 * (kT5 + kClip));
  config.encoder.offline = true;
  EXPECT_EQ(memory_of(config, 1).on_host, 0);
  EXPECT_EQ(memory_of(config, 1).weights, 0);
  EXPECT_EQ(memory_of(config, 1).working, 0);
  config.validation.enable = true;
  config.validation.local_batch_size = 2;
  EXPECT_EQ(memory_of(config, 1).weights, 2 * kAutoencoder);
  EXPECT_EQ(memory_of(config, 1).working, int64_t{3} * 256 * 256 * 256 * 2 * 2);
}

TEST(FrozenEncoders, AreAPartOfTheWholePlan) {
  JobConfig config = flux_dev();
  const MemoryPlan with = plan_model(config, 1, 0).memory;
  config.encoder.offline = true;
  const MemoryPlan without = plan_model(config, 1, 0).memory;
  EXPECT_EQ(with.frozen, 2 * (kT5 + kClip + kAutoencoder));
  EXPECT_EQ(without.frozen, 0);
  EXPECT_EQ(with.total() - without.total(), with.frozen);  // they run when there is room
  EXPECT_NE(describe(with).find("; networks that are not trained take 9.26 GiB of that"), std::string::npos)
      << describe(with);
}

TEST(FrozenEncoders, TakeOfTheHostWhatTheyDoNotTakeOfTheDevice) {
  JobConfig config = flux_dev();
  const MemoryPlan on_device = plan_model(config, 1, 0).memory;
  config.encoder.on_cpu = true;
  for (const char* device : {"auto", "cpu", "cuda"}) {
    config.training.device = device;
    const MemoryPlan plan = plan_model(config, 1, 0).memory;
    EXPECT_EQ(plan.total(), on_device.total() - 2 * (kT5 + kClip));
    EXPECT_EQ(complaint([&] { check_fits_host(plan, on_device.total()); }), "");
    EXPECT_NE(
        complaint([&] { check_fits_host(plan, on_device.total() - 1); }).find("; others take 9.10 GiB of host memory"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace titanium::train
