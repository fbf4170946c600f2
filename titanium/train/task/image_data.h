// The data of the image task: which archives, read by whom, and how captions become tokens.
#pragma once

#include "titanium/config/job_config.h"
#include "titanium/data/image/image_loader.h"
#include "titanium/models/image_model.h"
#include "titanium/train/task/text_data.h"

namespace titanium::train {

// Tokens that CLIP gets of a caption.
constexpr int64_t kPooledTextTokens = 77;

// Captions for T5, of encoder.max_t5_encoding_len tokens, and for CLIP, of kPooledTextTokens: with their tokens of
// beginning and end, filled up or cut. The tokenizers are those in the encoders' folders; with training.test_mode both
// are that of model.hf_assets_path. Throws UsageError as Tokenizer::load does.
std::vector<data::CaptionEncoder> caption_encoders(const JobConfig& config);

// training.dataset or the mix of training.sources, without end. `encoders` are those above. With encoder.offline there
// are none, and each data set is a folder of prepared images, checked against the configuration and the model. Throws
// UsageError, which names the source, when one is prepared and should not be, or the other way round.
std::unique_ptr<data::ImageLoader> build_image_loader(const JobConfig& config, const models::ImageModel& model,
                                                      const std::vector<data::CaptionEncoder>& encoders,
                                                      const Reader& reader);
// Likewise validation.dataset, or each of validation.sources; no caption is left out.
std::vector<ValidationSet<data::ImageLoader>> build_image_validation_loaders(
    const JobConfig& config, const models::ImageModel& model, const std::vector<data::CaptionEncoder>& encoders,
    const Reader& reader);

// All of training.dataset or validation.dataset once, in the order of training without a shuffle, by one rank; no
// caption is left out. Throws UsageError where there are several data sets.
std::unique_ptr<data::ImageLoader> build_image_preparation_loader(const JobConfig& config,
                                                                  const models::ImageModel& model,
                                                                  const std::vector<data::CaptionEncoder>& encoders,
                                                                  bool validation, int64_t batch);

// What build_image_loader reads, in the order of the sources. Throws as it does, but for the sizes of the model.
std::vector<data::CorpusOptions> image_corpora(const JobConfig& config, const Reader& reader);

// Throws UsageError when training.img_size is not a multiple of the pixels of a patch.
void check_image_size(const JobConfig& config, const models::ImageModel& model);

// One sentence for each file of the run's data, encoders and tokenizers that is missing or broken.
std::vector<std::string> check_image_files(const JobConfig& config);

}  // namespace titanium::train
