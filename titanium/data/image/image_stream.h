// One canonical stream of pictures with captions, each cut to the same square.
#pragma once

#include "titanium/data/image/prepared_images.h"
#include "titanium/data/stream.h"

namespace titanium::data {

// A caption to token ids, always of the same number. Called from several threads at once.
using CaptionEncoder = std::function<std::vector<int32_t>(std::string_view caption)>;

struct ImageOptions {
  int64_t size = 256;                      // pixels of a side
  bool infinite = true;                    // begin again at the end of the data
  int64_t seed = 0;                        // of crops and of captions that are left out
  double caption_dropout = 0;              // the share of captions that each encoder gets as an empty text
  std::vector<CaptionEncoder> encoders{};  // of pictures; images that were prepared have encodings instead
};

struct ImageSample {
  std::string name;                          // file and key, for messages
  std::string caption;                       // as the data has it, also when it is left out
  std::vector<uint8_t> pixels;               // [3, size, size], red, green, blue
  std::vector<std::vector<int32_t>> tokens;  // of each encoder: of the caption, or of "" where it is left out
  std::vector<bool> left_out;                // of each encoder
  ImageEncodings encodings;                  // of prepared images, instead of pixels and tokens
  StreamPosition after;
};

// Note [Randomness of a sample]
// What is chosen at random for a picture (where it is cut, whether its caption is left out) is a function of
// ImageOptions::seed, the data set (of prepared images, that which they were made from), the stream and the number of
// samples that the stream has delivered of it. So every number of ranks and threads makes the same samples, a run that
// goes on makes those that it would have made, and every epoch has other crops.
//
// A record is used when it has a picture and a caption; of a corpus that was prepared, encodings and a caption. A
// picture whose sides are not both at least `size` is skipped and counted (Corpus::small_images); a record that cannot
// be used is a bad record. Not thread-safe; different streams of one corpus may be used from different threads.
class ImageStream {
 public:
  using Options = ImageOptions;
  using Sample = ImageSample;

  ImageStream(Corpus& corpus, const ImageOptions& options, int64_t stream, const StreamPosition& position);

  // The next sample; nothing at the end of a finite stream. Throws BadRecord unless bad records are skipped, Error when
  // no record of an infinite stream can be used, and as Corpus::record does.
  std::optional<ImageSample> next(const std::stop_token& stop = {});

 private:
  std::optional<ImageSample> sample_of(const Record& record) const;
  std::optional<ImageSample> decoded(const Record& record) const;
  ImageSample prepared(const Record& record, const PreparedImages& images) const;
  bool is_left_out(size_t encoder) const;
  uint64_t random_bits(uint64_t purpose) const;
  void begin_again();

  Corpus& corpus_;
  ImageOptions options_;
  int64_t stream_;
  StreamPosition position_;
  std::vector<std::vector<int32_t>> empty_tokens_;  // of each encoder
  bool sample_seen_ = false;                        // in this pass
  bool pass_is_whole_ = false;
};

}  // namespace titanium::data
