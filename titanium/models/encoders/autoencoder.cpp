#include "titanium/models/encoders/autoencoder.h"

#include <ATen/Context.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <c10/core/GradMode.h>

namespace titanium::models {
namespace {

constexpr double kNormEps = 1e-6;

struct Convolution {
  Convolution() = default;
  Convolution(const FrozenWeights& weights, const std::string& name, int64_t in, int64_t out, int64_t kernel)
      : weight(weights(name + ".weight", {out, in, kernel, kernel})), bias(weights(name + ".bias", {out})) {}
  Tensor operator()(const Tensor& x) const {
    const int64_t padding = weight.size(2) / 2;
    return at::conv2d(x, weight, bias, {1, 1}, {padding, padding});
  }
  // Every second position, with a row and a column of zeros after the last ones.
  Tensor halve(const Tensor& x) const { return at::conv2d(at::constant_pad_nd(x, {0, 1, 0, 1}), weight, bias, {2, 2}); }
  Tensor weight, bias;
};

struct GroupNorm {
  GroupNorm(const FrozenWeights& weights, const std::string& name, int64_t channels, int64_t groups)
      : weight(weights(name + ".weight", {channels})), bias(weights(name + ".bias", {channels})), groups(groups) {}
  Tensor operator()(const Tensor& x) const { return at::group_norm(x, groups, weight, bias, kNormEps); }
  Tensor weight, bias;
  int64_t groups;
};

struct ResidualBlock {
  ResidualBlock(const FrozenWeights& weights, const std::string& name, int64_t in, int64_t out, int64_t groups)
      : norm1(weights, name + ".norm1", in, groups),
        norm2(weights, name + ".norm2", out, groups),
        conv1(weights, name + ".conv1", in, out, 3),
        conv2(weights, name + ".conv2", out, out, 3) {
    if (in != out) shortcut = Convolution(weights, name + ".nin_shortcut", in, out, 1);
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor h = conv2(at::silu(norm2(conv1(at::silu(norm1(x))))));
    return (shortcut.weight.defined() ? shortcut(x) : x) + h;
  }
  GroupNorm norm1, norm2;
  Convolution conv1, conv2, shortcut;
};

// Every position sees every position, with one head.
struct AttentionBlock {
  AttentionBlock(const FrozenWeights& weights, const std::string& name, int64_t channels, int64_t groups)
      : norm(weights, name + ".norm", channels, groups),
        q(weights, name + ".q", channels, channels, 1),
        k(weights, name + ".k", channels, channels, 1),
        v(weights, name + ".v", channels, channels, 1),
        out(weights, name + ".proj_out", channels, channels, 1) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor normalised = norm(x);
    const auto rows = [&](const Convolution& layer) {
      return layer(normalised).flatten(2).transpose(1, 2).unsqueeze(1).contiguous();
    };
    const Tensor attended = at::scaled_dot_product_attention(rows(q), rows(k), rows(v));
    return x + out(attended.squeeze(1).transpose(1, 2).reshape(x.sizes()));
  }
  GroupNorm norm;
  Convolution q, k, v, out;
};

struct Middle {
  Middle(const FrozenWeights& weights, const std::string& name, int64_t channels, int64_t groups)
      : first(weights, name + ".block_1", channels, channels, groups),
        attention(weights, name + ".attn_1", channels, groups),
        second(weights, name + ".block_2", channels, channels, groups) {}
  Tensor operator()(const Tensor& x) const { return second(attention(first(x))); }
  ResidualBlock first;
  AttentionBlock attention;
  ResidualBlock second;
};

struct Resolution {
  std::vector<ResidualBlock> blocks;
  Convolution resample;  // to the next resolution, if there is one
};

int64_t widest(const AutoencoderArgs& args) { return args.channels * args.multipliers.back(); }

struct Encoder {
  Encoder(const AutoencoderArgs& args, const FrozenWeights& weights)
      : in(weights, "encoder.conv_in", args.image_channels, args.channels, 3),
        middle(weights, "encoder.mid", widest(args), args.groups),
        norm(weights, "encoder.norm_out", widest(args), args.groups),
        out(weights, "encoder.conv_out", widest(args), 2 * args.latent_channels, 3) {
    int64_t channels = args.channels;
    for (size_t i = 0; i < args.multipliers.size(); ++i) {
      const std::string name = fmt::format("encoder.down.{}", i);
      Resolution level;
      for (int64_t j = 0; j < args.residual_blocks; ++j) {
        const int64_t wanted = args.channels * args.multipliers[i];
        level.blocks.emplace_back(weights, fmt::format("{}.block.{}", name, j), channels, wanted, args.groups);
        channels = wanted;
      }
      if (i + 1 < args.multipliers.size()) {
        level.resample = Convolution(weights, name + ".downsample.conv", channels, channels, 3);
      }
      down.push_back(std::move(level));
    }
  }
  Tensor operator()(const Tensor& image) const {
    Tensor x = in(image);
    for (const Resolution& level : down) {
      for (const ResidualBlock& block : level.blocks) x = block(x);
      if (level.resample.weight.defined()) x = level.resample.halve(x);
    }
    return out(at::silu(norm(middle(x))));
  }
  Convolution in;
  std::vector<Resolution> down;
  Middle middle;
  GroupNorm norm;
  Convolution out;
};

struct Decoder {
  Decoder(const AutoencoderArgs& args, const FrozenWeights& weights)
      : in(weights, "decoder.conv_in", args.latent_channels, widest(args), 3),
        middle(weights, "decoder.mid", widest(args), args.groups),
        norm(weights, "decoder.norm_out", args.channels * args.multipliers.front(), args.groups),
        out(weights, "decoder.conv_out", args.channels * args.multipliers.front(), args.image_channels, 3) {
    int64_t channels = widest(args);
    for (size_t i = args.multipliers.size(); i-- > 0;) {
      const std::string name = fmt::format("decoder.up.{}", i);
      Resolution level;
      for (int64_t j = 0; j <= args.residual_blocks; ++j) {
        const int64_t wanted = args.channels * args.multipliers[i];
        level.blocks.emplace_back(weights, fmt::format("{}.block.{}", name, j), channels, wanted, args.groups);
        channels = wanted;
      }
      if (i > 0) level.resample = Convolution(weights, name + ".upsample.conv", channels, channels, 3);
      up.push_back(std::move(level));
    }
  }
  Tensor operator()(const Tensor& latents) const {
    Tensor x = middle(in(latents));
    for (const Resolution& level : up) {
      for (const ResidualBlock& block : level.blocks) x = block(x);
      if (!level.resample.weight.defined()) continue;
      x = level.resample(at::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)}));
    }
    return out(at::silu(norm(x)));
  }
  Convolution in;
  Middle middle;
  std::vector<Resolution> up;  // the coarsest first
  GroupNorm norm;
  Convolution out;
};

}  // namespace

struct Autoencoder::Networks {
  Networks(const AutoencoderArgs& args, const FrozenWeights& weights)
      : encoder(args, weights), decoder(args, weights) {}
  Tensor in_our_dtype(const Tensor& x) const { return x.to(encoder.in.weight.scalar_type()); }
  Encoder encoder;
  Decoder decoder;
};

Autoencoder::Autoencoder(const AutoencoderArgs& args, const FrozenWeights& weights)
    : args_(args), networks_(std::make_unique<const Networks>(args, weights)) {
  at::globalContext().setAllowTF32CuDNN(false);  // an autoencoder in fp32 draws the same images on every device
}
Autoencoder::~Autoencoder() = default;

Tensor Autoencoder::encode(const Tensor& images_BCHW, const Tensor& noise_Bchw) const {
  return sampled(moments(images_BCHW), noise_Bchw, args_);
}

Tensor Autoencoder::moments(const Tensor& images_BCHW) const {
  const c10::AutoGradMode no_grad(false);
  return networks_->encoder(networks_->in_our_dtype(images_BCHW));
}

Tensor Autoencoder::sampled(const Tensor& moments_Bmhw, const Tensor& noise_Bchw, const AutoencoderArgs& args) {
  const c10::AutoGradMode no_grad(false);
  const std::vector<Tensor> moments = moments_Bmhw.chunk(2, 1);
  const Tensor z = moments[0] + at::exp(moments[1] * 0.5) * noise_Bchw.to(moments[0].scalar_type());
  return (z - args.shift) * args.scale;
}

Tensor Autoencoder::decode(const Tensor& latents_Bchw) const {
  const c10::AutoGradMode no_grad(false);
  return networks_->decoder(networks_->in_our_dtype(latents_Bchw / args_.scale + args_.shift));
}

}  // namespace titanium::models
