// Frozen encoders of texts in Hugging Face's format. Shapes: B texts, L tokens, C columns.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "titanium/models/encoders/frozen_weights.h"
#include "titanium/models/encoders/sharded_weights.h"

namespace titanium::models {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Encodes tokens [B, L] on the weights' device. T5 returns the states of all tokens, [B, L, C]; CLIP its pooled
  // output, [B, C], the state of the token that ends the text. Nothing is recorded for autograd. Padding is seen like
  // any other token.
  virtual Tensor encode(const Tensor& tokens_BL) const = 0;
  virtual int64_t width() const = 0;       // C
  virtual int64_t vocabulary() const = 0;  // token ids are smaller
  virtual Device device() const = 0;       // of the weights
};

// A config.json and where it came from, for messages.
struct EncoderConfig {
  std::string place;
  nlohmann::json json;
};
// Throws UsageError when the file holds no JSON object.
EncoderConfig read_encoder_config(const std::filesystem::path& file);
// The config.json of an encoder that image models commonly use, by the last part of its name at Hugging Face; nothing
// for others.
std::optional<EncoderConfig> published_encoder_config(const std::string& name);

// The encoder half of T5. `keep` gets the weights of each block. Throws UsageError for sizes that describe something
// else.
std::unique_ptr<TextEncoder> make_t5_encoder(const EncoderConfig& config, const FrozenWeights& weights,
                                             const KeepFrozen& keep = keep_whole());
// CLIP's encoder of texts; the config.json may be that of the whole CLIP.
std::unique_ptr<TextEncoder> make_clip_encoder(const EncoderConfig& config, const FrozenWeights& weights);

}  // namespace titanium::models
