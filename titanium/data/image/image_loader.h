// Batches of pictures with captions, made by background threads.
#pragma once

#include "titanium/data/image/image_stream.h"
#include "titanium/data/stream_loader.h"

namespace titanium::data {

// `samples` rows, of which the last ones may be missing at the end of finite data: then `count` is smaller, and the
// rows after it are zeros, with tokens or encodings of an empty caption.
struct ImageBatch {
  int64_t samples = 0;                       // rows
  int64_t count = 0;                         // rows that hold a sample, the first ones
  int64_t size = 0;                          // pixels of a side
  std::vector<uint8_t> pixels;               // [samples, 3, size, size]; the model's value is pixel / 255 * 2 - 1
  std::vector<std::vector<int32_t>> tokens;  // of each encoder [samples * its length]
  std::vector<std::vector<bool>> left_out;   // of each encoder [samples]: its tokens are those of an empty caption
  ImageEncodings encodings;                  // rows of prepared images, which have neither pixels nor tokens
  std::vector<std::string> captions;         // [samples]
  std::vector<std::string> names;            // [samples], file and key, for messages
  // [samples], the number of each sample in the run: turn * streams + stream. It does not depend on the number of ranks
  // or threads, goes on where a run goes on, and no sample of a run shares it with another, of a later epoch neither:
  // noise and timesteps of a sample are functions of a seed and this number.
  std::vector<int64_t> numbers;
};

// Rows [first, first + count) of a batch.
ImageBatch rows_of(const ImageBatch& batch, int64_t first, int64_t count);

struct ImageLoaderOptions {
  int64_t batch = 8;
  ImageOptions images{};
  int64_t num_workers = 0;      // threads; 0 means one as well: decoding never runs on the caller's thread
  int64_t prefetch_factor = 2;  // batches that each thread may be ahead
};

// Samples in the order of stream_loader.h: canonical streams, so any number of ranks that divides the number of streams
// reads the same ones, and state, load, rewind, last_wait_seconds and bad_records are as in loader.h. A saved position
// does not depend on the size of pictures, so a run may go on with larger ones. Of the sources of a mix all were
// prepared, with the same sizes, or none.
class ImageLoader : public StreamLoader<ImageStream> {
 public:
  // Starts the threads. Throws as Corpus does.
  ImageLoader(CorpusOptions corpus, const ImageLoaderOptions& options);
  ImageLoader(std::vector<MixEntry> sources, std::vector<MixturePiece> weights, const ImageLoaderOptions& options);

  // The next batch; nothing at the end of finite data. Throws what a thread has thrown while making this batch, again
  // in later calls.
  std::optional<ImageBatch> next();

  // A batch without samples (count 0), for a rank whose data has ended before that of others.
  ImageBatch empty_batch() const;

  const ImageLoaderOptions& options() const { return options_; }
  int64_t small_images() const;  // skipped so far by this rank because a side is shorter than `size`

 private:
  ImageLoader(LoaderSources sources, const ImageLoaderOptions& options);
  std::string why_no_sample() const override;

  ImageLoaderOptions options_;
  std::vector<std::vector<int32_t>> empty_tokens_;  // of each encoder
};

}  // namespace titanium::data
