#include "titanium/data/image/image_loader.h"

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

ImageLoaderOptions checked(const ImageLoaderOptions& options) {
  TI_CHECK(options.batch >= 1, "A batch of {} samples is not possible. Use at least 1.", options.batch);
  TI_CHECK(options.prefetch_factor >= 1, "dataloader.prefetch_factor = {} must be at least 1.",
           options.prefetch_factor);
  return options;
}

CorpusOptions of_images(CorpusOptions corpus) {
  corpus.images = true;
  return corpus;
}

std::vector<MixEntry> of_images(std::vector<MixEntry> sources) {
  for (MixEntry& source : sources) source.corpus.images = true;
  return sources;
}

template <typename T>
std::vector<T> part_of(const std::vector<T>& values, int64_t rows, int64_t first, int64_t count) {
  const int64_t width = std::ssize(values) / rows;
  return {values.begin() + first * width, values.begin() + (first + count) * width};
}

// Rows without a sample: latents of zeros, and an empty caption.
ImageEncodings empty_encodings(const PreparedImages& prepared, size_t rows) {
  ImageEncodings encodings;
  const size_t bytes = prepared.empty.pooled.size() / static_cast<size_t>(prepared.description.sizes.pooled_width);
  encodings.moments.resize(rows * bytes * static_cast<size_t>(prepared.description.sizes.moments()));
  for (size_t row = 0; row < rows; ++row) {
    encodings.text.insert(encodings.text.end(), prepared.empty.text.begin(), prepared.empty.text.end());
    encodings.pooled.insert(encodings.pooled.end(), prepared.empty.pooled.begin(), prepared.empty.pooled.end());
  }
  return encodings;
}

}  // namespace

ImageBatch rows_of(const ImageBatch& batch, int64_t first, int64_t count) {
  TI_ASSERT(first >= 0 && count >= 0 && first + count <= batch.samples);
  const auto part = [&](const auto& values) { return part_of(values, batch.samples, first, count); };
  ImageBatch rows{
      .samples = count,
      .count = std::clamp(batch.count - first, int64_t{0}, count),
      .size = batch.size,
      .pixels = part(batch.pixels),
      .tokens = {},
      .left_out = {},
      .encodings = {part(batch.encodings.moments), part(batch.encodings.text), part(batch.encodings.pooled)},
      .captions = part(batch.captions),
      .names = part(batch.names),
      .numbers = part(batch.numbers)};
  for (const auto& tokens : batch.tokens) rows.tokens.push_back(part(tokens));
  for (const auto& left_out : batch.left_out) rows.left_out.push_back(part(left_out));
  return rows;
}

ImageLoader::ImageLoader(CorpusOptions corpus, const ImageLoaderOptions& options)
    : ImageLoader(LoaderSources::single(of_images(std::move(corpus)), nullptr), checked(options)) {}

ImageLoader::ImageLoader(std::vector<MixEntry> sources, std::vector<MixturePiece> weights,
                         const ImageLoaderOptions& options)
    : ImageLoader(LoaderSources::mix(of_images(std::move(sources)), std::move(weights), nullptr), checked(options)) {}

ImageLoader::ImageLoader(LoaderSources sources, const ImageLoaderOptions& options)
    : StreamLoader(std::move(sources), {.stream = options.images,
                                        .seq_len = 0,
                                        .num_workers = options.num_workers,
                                        .ahead = options.prefetch_factor * options.batch}),
      options_(options) {
  for (const CaptionEncoder& encoder : options.images.encoders) empty_tokens_.push_back(encoder(""));
}

ImageBatch ImageLoader::empty_batch() const {
  const auto samples = static_cast<size_t>(options_.batch);
  const int64_t size = options_.images.size;
  const PreparedImages* const prepared = corpora()[0]->options().prepared.get();
  ImageBatch batch{.samples = options_.batch,
                   .count = 0,
                   .size = size,
                   .pixels = std::vector<uint8_t>(prepared ? 0 : samples * static_cast<size_t>(3 * size * size)),
                   .tokens = {},
                   .left_out = {},
                   .encodings = prepared ? empty_encodings(*prepared, samples) : ImageEncodings(),
                   .captions = std::vector<std::string>(samples),
                   .names = std::vector<std::string>(samples),
                   .numbers = std::vector<int64_t>(samples)};
  if (prepared != nullptr) batch.left_out.assign(2, std::vector<bool>(samples, true));
  for (const auto& tokens : empty_tokens_) {
    std::vector<int32_t>& all = batch.tokens.emplace_back();
    for (size_t row = 0; row < samples; ++row) all.insert(all.end(), tokens.begin(), tokens.end());
    batch.left_out.emplace_back(samples, true);
  }
  return batch;
}

std::optional<ImageBatch> ImageLoader::next() {
  auto taken = take(options_.batch);
  if (taken.empty()) return std::nullopt;
  ImageBatch batch = empty_batch();
  batch.count = std::ssize(taken);
  for (size_t row = 0; row < taken.size(); ++row) {
    ImageSample& sample = taken[row].sample;
    const auto put = [&](const auto& values, auto& rows) {
      TI_ASSERT(values.size() * static_cast<size_t>(batch.samples) == rows.size(),
                "{}: a row of {} values for {} of {}", sample.name, values.size(), batch.samples, rows.size());
      std::ranges::copy(values, rows.begin() + static_cast<int64_t>(row * values.size()));
    };
    put(sample.pixels, batch.pixels);
    put(sample.encodings.moments, batch.encodings.moments);
    put(sample.encodings.text, batch.encodings.text);
    put(sample.encodings.pooled, batch.encodings.pooled);
    for (size_t k = 0; k < sample.left_out.size(); ++k) batch.left_out[k][row] = sample.left_out[k];
    for (size_t k = 0; k < sample.tokens.size(); ++k) put(sample.tokens[k], batch.tokens[k]);
    batch.captions[row] = std::move(sample.caption);
    batch.names[row] = std::move(sample.name);
    batch.numbers[row] = taken[row].number;
  }
  return batch;
}

int64_t ImageLoader::small_images() const {
  int64_t count = 0;
  for (const auto& corpus : corpora()) count += corpus->small_images();
  return count;
}

std::string ImageLoader::why_no_sample() const {
  return fmt::format("all are bad, or their images are smaller than {} x {} pixels", options_.images.size,
                     options_.images.size);
}

}  // namespace titanium::data
