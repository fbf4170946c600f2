#include "titanium/data/image/image_stream.h"

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/data/document.h"
#include "titanium/data/image/decode.h"
#include "titanium/data/image/image_text.h"
#include "titanium/data/image/resize.h"

namespace titanium::data {
namespace {

// What a random number is for.
constexpr uint64_t kPlaceOfCut = 0;
constexpr uint64_t kCaption = 1;  // of the first encoder; the next ones follow

uint64_t below(uint64_t bits, int64_t limit) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(limit)) >> 64U);
}

double fraction(uint64_t bits) { return static_cast<double>(bits >> 11U) * 0x1p-53; }

Image decode_picture(const Record& record, const ImageText& found) {
  try {
    return decode_image(found.image);
  } catch (const ImageError& error) {
    throw BadRecord(refusal(record, found.key, fmt::format("has an image that {}", error.what())));
  }
}

std::string name_of(const Record& record, const std::string& key) {
  return fmt::format("{}:{}", record.file->path.string(), printable(key));
}

}  // namespace

ImageStream::ImageStream(Corpus& corpus, const ImageOptions& options, int64_t stream, const StreamPosition& position)
    : corpus_(corpus),
      options_(options),
      stream_(stream),
      position_(position),
      pass_is_whole_(position.record == stream) {
  TI_CHECK(options.size >= 1, "training.img_size = {} must be at least 1.", options.size);
  TI_CHECK(options.caption_dropout >= 0 && options.caption_dropout <= 1,
           "training.classifier_free_guidance_prob = {} is no probability. Use a number from 0 to 1.",
           options.caption_dropout);
  TI_CHECK(position.record >= 0 && position.record % corpus.streams() == stream && position.token == 0,
           "The saved data position of stream {} is damaged: record {}, token {}. Use another checkpoint.", stream,
           position.record, position.token);
  for (const CaptionEncoder& encoder : options.encoders) empty_tokens_.push_back(encoder(""));
}

std::optional<ImageSample> ImageStream::next(const std::stop_token& stop) {
  for (;;) {
    const auto found = corpus_.record(position_.record, position_.epoch, stop);
    if (!found) {
      if (!options_.infinite || corpus_.is_last_pass(position_.epoch)) return std::nullopt;
      begin_again();
      continue;
    }
    position_.entrance = found->entrance.value_or(position_.entrance);
    auto sample = found->record ? sample_of(*found->record) : std::nullopt;
    position_.record += corpus_.streams();
    if (!sample) continue;
    sample_seen_ = true;
    ++position_.samples;
    sample->after = position_;
    return sample;
  }
}

// Nothing for one that is skipped.
std::optional<ImageSample> ImageStream::sample_of(const Record& record) const {
  try {
    const PreparedImages* const images = corpus_.options().prepared.get();
    return images != nullptr ? prepared(record, *images) : decoded(record);
  } catch (const BadRecord& error) {
    corpus_.skip_bad_record(error.what());
    return std::nullopt;
  }
}

std::optional<ImageSample> ImageStream::decoded(const Record& record) const {
  ImageText found = image_text(record);
  const std::string name = name_of(record, found.key);
  const Image image = decode_picture(record, found);
  const auto cut = square_cut(image.width, image.height, options_.size);
  if (!cut) {
    corpus_.skip_small_image(fmt::format("{} with {} x {} pixels", name, image.width, image.height));
    return std::nullopt;
  }
  ImageSample sample{.name = name, .caption = std::move(found.caption)};
  const auto place = static_cast<int64_t>(below(random_bits(kPlaceOfCut), cut->places));
  sample.pixels = square_of(image, options_.size, *cut, place);
  for (size_t k = 0; k < options_.encoders.size(); ++k) {
    sample.left_out.push_back(is_left_out(k));
    sample.tokens.push_back(sample.left_out[k] ? empty_tokens_[k] : options_.encoders[k](sample.caption));
  }
  return sample;
}

ImageSample ImageStream::prepared(const Record& record, const PreparedImages& images) const {
  PreparedSample found = prepared_sample(record, images.description.sizes);
  ImageSample sample{.name = name_of(record, found.key), .caption = std::move(found.caption)};
  sample.left_out = {is_left_out(0), is_left_out(1)};
  sample.encodings = std::move(found.encodings);
  if (sample.left_out[0]) sample.encodings.text = images.empty.text;
  if (sample.left_out[1]) sample.encodings.pooled = images.empty.pooled;
  return sample;
}

bool ImageStream::is_left_out(size_t encoder) const {
  return fraction(random_bits(kCaption + encoder)) < options_.caption_dropout;
}

// See Note [Randomness of a sample].
uint64_t ImageStream::random_bits(uint64_t purpose) const {
  uint64_t bits = mixed_bits(static_cast<uint64_t>(options_.seed));
  const PreparedImages* const images = corpus_.options().prepared.get();
  const std::string& data = images != nullptr ? images->description.fingerprint : corpus_.fingerprint();
  bits = mixed_bits(bits ^ std::stoull(data, nullptr, 16));
  bits = mixed_bits(bits ^ static_cast<uint64_t>(stream_));
  bits = mixed_bits(bits ^ static_cast<uint64_t>(position_.samples));
  return mixed_bits(bits ^ purpose);
}

void ImageStream::begin_again() {
  TI_CHECK(sample_seen_ || !pass_is_whole_,
           "Dataset {}: no sample of data stream {} can be used: all are bad, or their images are smaller than {} x {} "
           "pixels. Repair the data, or use a smaller training.img_size or fewer training.data_streams{}.",
           corpus_.options().name, stream_, options_.size, options_.size,
           corpus_.striping().by_blocks() ? ", or set training.data_striping to \"records\"" : "");
  corpus_.note_relooped();
  position_ = {.epoch = position_.epoch + 1, .samples = position_.samples, .record = stream_};
  sample_seen_ = false;
  pass_is_whole_ = true;
}

}  // namespace titanium::data
