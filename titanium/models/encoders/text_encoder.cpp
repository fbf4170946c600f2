#include "titanium/models/encoders/text_encoder.h"

#include "titanium/models/json_reader.h"

namespace titanium::models {
namespace {

struct T5Sizes {
  std::string_view name;
  int64_t dim, hidden, layers, heads;
};
constexpr T5Sizes kT5[] = {{"t5-v1_1-small", 512, 1024, 8, 6},
                           {"t5-v1_1-base", 768, 2048, 12, 12},
                           {"t5-v1_1-large", 1024, 2816, 24, 16},
                           {"t5-v1_1-xl", 2048, 5120, 24, 32},
                           {"t5-v1_1-xxl", 4096, 10240, 24, 64}};

}  // namespace

EncoderConfig read_encoder_config(const std::filesystem::path& file) {
  return {file.string(), read_json_object(file, "the sizes of an encoder of texts")};
}

std::optional<EncoderConfig> published_encoder_config(const std::string& name) {
  const std::string last = std::filesystem::path(name).filename().string();
  for (const T5Sizes& sizes : kT5) {
    if (last != sizes.name) continue;
    return EncoderConfig{name,
                         {{"model_type", "t5"},
                          {"vocab_size", 32128},
                          {"d_model", sizes.dim},
                          {"d_kv", 64},
                          {"d_ff", sizes.hidden},
                          {"num_layers", sizes.layers},
                          {"num_heads", sizes.heads},
                          {"feed_forward_proj", "gated-gelu"}}};
  }
  if (last != "clip-vit-large-patch14") return std::nullopt;
  return EncoderConfig{name,
                       {{"model_type", "clip_text_model"},
                        {"vocab_size", 49408},
                        {"hidden_size", 768},
                        {"intermediate_size", 3072},
                        {"num_hidden_layers", 12},
                        {"num_attention_heads", 12}}};
}

}  // namespace titanium::models
