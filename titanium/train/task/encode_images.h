// What the frozen networks say of captions and images, or have said when the images were prepared.
#pragma once

#include "titanium/data/image/image_loader.h"
#include "titanium/train/task/image_encoders.h"

namespace titanium::train {

// In the compute dtype, on the device of the training.
struct EncodedCaptions {
  Tensor text_BLC;
  Tensor pooled_BY;
};
struct EncodedImages {
  EncodedCaptions captions;
  Tensor moments_Bmhw;  // of the latents, as Autoencoder::moments
};

// The encodings of captions, of which equal ones are encoded once. `tokens` are those of each encoder, [captions * its
// length]. Throws Error when a token is beyond the encoder's vocabulary.
EncodedCaptions encode_captions(const ImageEncoders& encoders, const std::vector<std::vector<int32_t>>& tokens,
                                int64_t captions, Device device);

// The encodings of a batch. The networks run, unless the batch has encodings that were prepared: then `encoders` may
// have none.
EncodedCaptions captions_of(const data::ImageBatch& batch, const ImageEncoders& encoders,
                            const models::ImageModel& model, Device device);
EncodedImages encode_images(const data::ImageBatch& batch, const ImageEncoders& encoders,
                            const models::ImageModel& model, Device device);

// Tokens of the text of each sample.
int64_t text_tokens(const data::ImageBatch& batch, const models::ImageModel& model);

}  // namespace titanium::train
