// Images and captions whose encodings were computed ahead of training.
//
// Note [Prepared images]
// A folder of `titanium data prepare-images` holds
//   prepared.json      which networks made it, with which sizes and in which dtype; written last, so that a folder
//                      without it is not finished
//   empty.safetensors  t5_encodings and clip_encodings of an empty caption, for captions that are left out
//   shards/*.tar       a sample each of KEY.safetensors (mean and logvar of the latents, t5_encodings, clip_encodings)
//                      and KEY.txt (the caption)
// The autoencoder's noise, the time and whether a caption is left out are still chosen while training reads, by the
// same functions of seed and sample, so that training from a folder and from the images themselves agree. Where a
// picture is cut was chosen when the folder was made.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/data/record_source.h"

namespace titanium::data {

struct PreparedSizes {
  int64_t img_size = 0;  // pixels of a side
  int64_t latent_channels = 0;
  int64_t latent_side = 0;
  int64_t text_tokens = 0;
  int64_t text_width = 0;
  int64_t pooled_width = 0;
  std::string dtype;  // "float32", "bfloat16" or "float16"

  int64_t moments() const { return 2 * latent_channels * latent_side * latent_side; }  // elements
  bool operator==(const PreparedSizes&) const = default;
};

// A network that encoded: the last part of encoder.t5_encoder, clip_encoder or autoencoder_path, and a fingerprint of
// its weights. Models of the hub have no fingerprint, nor have those that are "made up by seed N" in tests.
struct PreparedNetwork {
  std::string name;
  std::string weights;

  bool operator==(const PreparedNetwork&) const = default;
};

struct PreparedDescription {
  PreparedSizes sizes;
  PreparedNetwork t5_encoder, clip_encoder, autoencoder;
  std::string fingerprint;  // of the files that were read
  int64_t seed = 0;         // of the cuts
  int64_t streams = 0;      // among which the samples were dealt
  int64_t samples = 0;

  bool operator==(const PreparedDescription&) const = default;
};

std::string to_json(const PreparedDescription& description);
// Throws Error that names `place`, for messages, and the key.
PreparedDescription prepared_description_from_json(std::string_view text, const std::string& place);

// Bytes of tensors in the dtype of the sizes, one row or several.
struct ImageEncodings {
  std::vector<uint8_t> moments;  // [2, channels, side, side]: mean, then the logarithm of the variance
  std::vector<uint8_t> text;     // [tokens, width]
  std::vector<uint8_t> pooled;   // [width]
};

// Those of a safetensors file in memory. With `latents` it has mean and logvar, too. Throws Error, for a message that
// goes on after "the sample ...", unless all tensors have these sizes.
ImageEncodings parse_encodings(std::string_view file, const PreparedSizes& sizes, bool latents);

struct PreparedSample {
  std::string key;
  std::string caption;
  ImageEncodings encodings;
};
// Out of a sample of an archive. Throws BadRecord when a part is missing, damaged or has other sizes.
PreparedSample prepared_sample(const Record& record, const PreparedSizes& sizes);

// A folder to train from.
struct PreparedImages {
  PreparedDescription description;
  ImageEncodings empty;  // of a caption that is left out
  std::filesystem::path shards;
};

constexpr std::string_view kPreparedFile = "prepared.json", kEmptyCaptionFile = "empty.safetensors";
constexpr std::string_view kPreparedShards = "shards";

bool is_prepared(const std::filesystem::path& folder);
// Throws UsageError when the folder was not prepared or not finished, Error when a file of it is damaged.
PreparedImages open_prepared_images(const std::filesystem::path& folder);

}  // namespace titanium::data
