// The data of the image task: which archives, read by whom, and how captions become tokens.
#pragma once

#include "titanium/config/job_config.h"
#include "titanium/data/image/image_loader.h"
#include "titanium/train/task/text_data.h"

namespace titanium::train {

// Tokens that CLIP gets of a caption.
constexpr int64_t kPooledTextTokens = 77;

// Captions for T5, of encoder.max_t5_encoding_len tokens, and for CLIP, of kPooledTextTokens: with their tokens of
// beginning and end, filled up or cut. The tokenizers are those in the encoders' folders; with training.test_mode both
// are that of model.hf_assets_path. Throws UsageError as Tokenizer::load does.
std::vector<data::CaptionEncoder> caption_encoders(const JobConfig& config);

// training.dataset, without end. `encoders` are those above.
std::unique_ptr<data::ImageLoader> build_image_loader(const JobConfig& config,
                                                      const std::vector<data::CaptionEncoder>& encoders,
                                                      const Reader& reader);
// validation.dataset; no caption is left out.
std::unique_ptr<data::ImageLoader> build_image_validation_loader(const JobConfig& config,
                                                                 const std::vector<data::CaptionEncoder>& encoders,
                                                                 const Reader& reader);

// One sentence for each file of the run's data, encoders and tokenizers that is missing or broken.
std::vector<std::string> check_image_files(const JobConfig& config);

}  // namespace titanium::train
