#include "titanium/train/task/encode_images.h"

#include <map>

#include "titanium/base/error.h"
#include "titanium/tensor/host_copy.h"

namespace titanium::train {
namespace {

bool is_prepared(const data::ImageBatch& batch) { return !batch.encodings.text.empty(); }

Tensor images_of(const data::ImageBatch& batch, Device device) {
  const Tensor pixels =
      copy_to_device(batch.pixels, device).view({batch.samples, 3, batch.size, batch.size}).to(at::kFloat);
  return pixels.div_(127.5).sub_(1);
}

// Captions without those that occur before, and which of them each caption is.
struct DistinctCaptions {
  std::vector<int32_t> tokens;
  std::vector<int64_t> of_caption;
};

DistinctCaptions distinct(const std::vector<int32_t>& tokens, int64_t captions) {
  DistinctCaptions found;
  std::map<std::vector<int32_t>, int64_t> seen;
  const auto length = static_cast<std::ptrdiff_t>(tokens.size()) / captions;
  for (int64_t i = 0; i < captions; ++i) {
    std::vector<int32_t> caption(tokens.begin() + i * length, tokens.begin() + (i + 1) * length);
    const auto [entry, is_first] = seen.emplace(std::move(caption), static_cast<int64_t>(seen.size()));
    if (is_first) found.tokens.insert(found.tokens.end(), entry->first.begin(), entry->first.end());
    found.of_caption.push_back(entry->second);
  }
  return found;
}

Tensor encode(const models::TextEncoder& encoder, const std::vector<int32_t>& tokens, int64_t captions, Device device) {
  const int32_t largest = *std::max_element(tokens.begin(), tokens.end());
  TI_CHECK(largest < encoder.vocabulary(),
           "the tokenizer made id {}, but the encoder's vocabulary has {} entries. Use the tokenizer that belongs to "
           "the encoder.",
           largest, encoder.vocabulary());
  // Many captions of a batch may be empty: training.classifier_free_guidance_prob.
  const auto [rows, of_caption] = distinct(tokens, captions);
  const int64_t length = static_cast<int64_t>(tokens.size()) / captions;
  const Tensor encoded =
      encoder.encode(copy_to_device(rows, encoder.device()).view({-1, length}).to(at::kLong)).to(device);
  return encoded.size(0) == captions ? encoded : encoded.index_select(0, copy_to_device(of_caption, device));
}

Tensor prepared_rows(const std::vector<uint8_t>& bytes, const Shape& shape, Dtype dtype, Device device) {
  const auto wanted = static_cast<size_t>(volume(shape)) * c10::elementSize(dtype);
  TI_ASSERT(bytes.size() == wanted, "prepared rows have {} bytes, not {}", bytes.size(), wanted);
  return copy_to_device(bytes, device).view(dtype).view(shape);
}

}  // namespace

EncodedCaptions encode_captions(const ImageEncoders& encoders, const std::vector<std::vector<int32_t>>& tokens,
                                int64_t captions, Device device) {
  return {encode(*encoders.text, tokens.at(0), captions, device),
          encode(*encoders.pooled, tokens.at(1), captions, device)};
}

EncodedCaptions captions_of(const data::ImageBatch& batch, const ImageEncoders& encoders,
                            const models::ImageModel& model, Device device) {
  if (!is_prepared(batch)) return encode_captions(encoders, batch.tokens, batch.samples, device);
  const Dtype dtype = model.compute_dtype;
  return {prepared_rows(batch.encodings.text, {batch.samples, text_tokens(batch, model), model.text_width()}, dtype,
                        device),
          prepared_rows(batch.encodings.pooled, {batch.samples, model.pooled_width()}, dtype, device)};
}

EncodedImages encode_images(const data::ImageBatch& batch, const ImageEncoders& encoders,
                            const models::ImageModel& model, Device device) {
  EncodedCaptions captions = captions_of(batch, encoders, model, device);
  if (!is_prepared(batch)) return {std::move(captions), encoders.autoencoder->moments(images_of(batch, device))};
  const models::AutoencoderArgs& args = model.autoencoder();
  const int64_t side = batch.size / args.pixels();
  return {std::move(captions),
          prepared_rows(batch.encodings.moments, {batch.samples, 2 * args.latent_channels, side, side},
                        model.compute_dtype, device)};
}

int64_t text_tokens(const data::ImageBatch& batch, const models::ImageModel& model) {
  if (!is_prepared(batch)) return static_cast<int64_t>(batch.tokens.at(0).size()) / batch.samples;
  const auto row = model.text_width() * static_cast<int64_t>(c10::elementSize(model.compute_dtype));
  return static_cast<int64_t>(batch.encodings.text.size()) / (batch.samples * row);
}

}  // namespace titanium::train
