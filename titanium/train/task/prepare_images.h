// Encodes a set of images and captions once, so that runs need neither the images nor the encoders.
#pragma once

#include <functional>
#include <memory>

#include "titanium/config/job_config.h"
#include "titanium/data/image/prepared_images.h"
#include "titanium/models/image_model.h"

namespace titanium::train {

struct ImagePreparation {
  std::filesystem::path out;    // a folder
  bool validation = false;      // validation.dataset instead of training.dataset
  int64_t batch = 8;            // images at once
  int64_t shard_samples = 512;  // of an archive, at least
};

struct ImagePreparationCounts {
  int64_t samples = 0;  // in the whole folder
  int64_t shards = 0;
  int64_t kept_samples = 0;  // of them, those that were there already
  int64_t small_images = 0;  // left out this time
  int64_t bad_records = 0;
};

// Writes the folder of Note [Prepared images] in data/image/prepared_images.h, in the order of training without a
// shuffle, with the encoders, sizes and compute dtype of the configuration. An archive appears whole or not at all, and
// a preparation that was stopped goes on after its last archive, of which the log tells. `on_images`, if there is one,
// hears after each batch how many images were encoded or left out this time; how many there are is not known before.
// Throws UsageError when `out` was begun with other options, Error as the loader does.
ImagePreparationCounts prepare_images(const JobConfig& config, const ImagePreparation& preparation, Device device,
                                      const std::function<void(int64_t images)>& on_images = {});

// A prepared folder that the configuration trains from. Throws UsageError unless encoders, sizes and dtype are those of
// the configuration, and as open_prepared_images does. Encoders are the same when the last parts of their names are
// and, where their weights were files at the preparation and are files now, these too.
std::shared_ptr<const data::PreparedImages> open_prepared(const JobConfig& config, const std::filesystem::path& folder);
// Throws UsageError when the encodings have other sizes than the model takes.
void check_prepared_sizes(const data::PreparedImages& prepared, const models::ImageModel& model);

}  // namespace titanium::train
