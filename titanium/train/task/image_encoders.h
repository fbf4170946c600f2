// The frozen networks of a run that trains on images: two encoders of captions and the autoencoder.
#pragma once

#include "titanium/config/job_config.h"
#include "titanium/models/encoders/autoencoder.h"
#include "titanium/models/encoders/text_encoder.h"
#include "titanium/models/image_model.h"
#include "titanium/parallel/mesh.h"
#include "titanium/train/memory_plan.h"

namespace titanium::train {

struct ImageEncoders {
  std::unique_ptr<models::TextEncoder> text;    // T5: an encoding of every token
  std::unique_ptr<models::TextEncoder> pooled;  // CLIP: one of the whole caption
  std::unique_ptr<models::Autoencoder> autoencoder;
};

// What encoder.t5_encoder, clip_encoder and autoencoder_path name: folders, or models of the hub, which are downloaded.
// With training.test_mode the weights are made up, and only config.json of each encoder is read. They are in the
// model's compute dtype and whole on every rank, but for the blocks of T5 with encoder.sharded, which are cut over the
// ranks of FSDP of `mesh`. With encoder.on_cpu those of captions are in host memory. Throws UsageError for files that
// are missing or do not fit the model.
ImageEncoders load_image_encoders(const JobConfig& config, const models::ImageModel& model, Device device,
                                  const parallel::Mesh* mesh = nullptr);
// What a run needs of that: with encoder.offline none of captions, and the autoencoder only to draw images.
ImageEncoders load_encoders_of_run(const JobConfig& config, const models::ImageModel& model, Device device,
                                   const parallel::Mesh& mesh);

// What they will take of memory, the device's or with encoder.on_cpu the host's, from their sizes alone. An encoder at
// the hub whose sizes nobody knows here is not counted, and the log says so. Throws UsageError as loading does.
FrozenMemory image_encoder_memory(const JobConfig& config, const models::ImageModel& model,
                                  const parallel::ParallelDims& dims);

// Whether validations draw images.
bool draws_images(const config::Validation& validation);

// Throws UsageError when encoder.autoencoder_path does not exist and its weights are not made up.
void check_autoencoder(const JobConfig& config);

// Whether an encoder is a folder on this machine; else it is a model of the hub. Throws UsageError for what can be
// neither.
bool is_encoder_here(const std::string& name);

// The folder of an encoder's config.json, tokenizer and, if wanted, weights: `name` itself, or a copy from the hub.
std::filesystem::path encoder_folder(const std::string& name, bool with_weights);

}  // namespace titanium::train
