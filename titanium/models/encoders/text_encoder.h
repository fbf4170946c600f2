// Frozen encoders of texts in Hugging Face's format. Shapes: B texts, L tokens, C columns.
#pragma once

#include <filesystem>
#include <memory>

#include "titanium/models/encoders/frozen_weights.h"

namespace titanium::models {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Of tokens [B, L] on the weights' device. T5 gives the states of all tokens, [B, L, C]; CLIP its pooled output,
  // [B, C], the state of the token that ends the text. Never records. Padding is seen like any other token.
  virtual Tensor encode(const Tensor& tokens_BL) const = 0;
  virtual int64_t width() const = 0;       // C
  virtual int64_t vocabulary() const = 0;  // token ids are smaller
};

// The encoder half of T5, of sizes from a config.json. Throws UsageError for a file that describes something else.
std::unique_ptr<TextEncoder> make_t5_encoder(const std::filesystem::path& config, const FrozenWeights& weights);
// CLIP's encoder of texts; the config.json may be that of the whole CLIP.
std::unique_ptr<TextEncoder> make_clip_encoder(const std::filesystem::path& config, const FrozenWeights& weights);

}  // namespace titanium::models
