// One canonical stream: its documents, packed into samples of equal length.
#pragma once

#include "titanium/data/corpus.h"

namespace titanium::data {

// Everything that is needed to go on with a stream: the next token to deliver
// is token `token` of the record at place `record` of the order
// (record_order.h).
struct StreamPosition {
  int64_t epoch = 0;    // passes over the data set that are complete
  int64_t samples = 0;  // samples delivered, over all epochs
  int64_t record = 0;
  int64_t token = 0;
  Anchor entrance{};   // at or before `record`
  bool ended = false;  // in a mix that goes on without this source

  bool operator==(const StreamPosition&) const = default;
};

struct PackingOptions {
  int64_t seq_len = 2048;
  bool infinite = true;                                   // begin again at the end of the data
  bool keep_remainder = false;                            // finite only: a last sample that is not full is
                                                          // delivered, not dropped
  std::optional<int32_t> end_of_document = std::nullopt;  // a token that ends a document inside a text, too
};

// Note [Document starts]
// A document begins with each text and after each token that ends one: a text
// may hold several. Every sample begins a document, because what comes before
// it is in another row.
struct Sample {
  std::vector<int32_t> tokens;           // seq_len + 1, or fewer (at least 2) in a remainder
  std::vector<int32_t> document_starts;  // places in `tokens`, ascending, the first one left out
  StreamPosition after;
};

// Samples are cut from the concatenation of the stream's documents at every
// seq_len + 1 tokens; labels are the inputs one token later, so the last label
// of a sample is never an input. Nothing is padded or masked. Not thread-safe;
// different streams of one corpus may be used from different threads.
class Stream {
 public:
  using Options = PackingOptions;
  using Sample = data::Sample;

  Stream(Corpus& corpus, const PackingOptions& options, int64_t stream, const StreamPosition& position);

  // The next sample; nothing at the end of a finite stream. Throws Error as
  // Corpus::document does, and when all records of an infinite stream together
  // have no token.
  std::optional<Sample> next(const std::stop_token& stop = {});

 private:
  bool open_document(const std::stop_token& stop);
  void leave_document();
  void append(Sample& sample, size_t count);
  void keep_rest();
  void begin_again();
  std::optional<Sample> remainder(Sample sample) const;

  Corpus& corpus_;
  PackingOptions options_;
  int64_t stream_;
  StreamPosition position_;
  std::optional<std::vector<int32_t>> document_;  // tokens of position_.record, from first_token_ on
  int64_t first_token_ = 0;
  bool token_seen_ = false;  // in this pass
  bool pass_is_whole_ = false;
};

}  // namespace titanium::data
