// Batches of token ids, made by background threads.
#pragma once

#include "titanium/data/stream_loader.h"

namespace titanium::data {

inline constexpr int64_t kIgnoreIndex = -100;  // a label that does not count

struct Batch {
  int64_t batch = 0;
  int64_t seq_len = 0;
  std::vector<int64_t> inputs;  // [batch * seq_len]
  std::vector<int64_t> labels;  // [batch * seq_len], the token that follows each input
  // The first input of every document, ascending, counted over all inputs: Note
  // [Document starts].
  std::vector<int32_t> document_starts;
};

// Rows [first, first + count) of a batch.
Batch rows_of(const Batch& batch, int64_t first, int64_t count);

// The place of each input in its document, [batch * seq_len]: 0 at every
// document start.
std::vector<int64_t> positions_in_documents(const Batch& batch);

// Inputs 0, labels kIgnoreIndex: what a rank feeds when its finite data has
// ended before that of other ranks.
Batch ignored_batch(int64_t batch, int64_t seq_len);

struct LoaderOptions {
  int64_t batch = 8;
  PackingOptions packing{};
  int64_t num_workers = 0;      // threads; 0 means one as well: tokenising never
                                // runs on the caller's thread
  int64_t prefetch_factor = 2;  // batches that each thread may be ahead
};

// Samples in the order of stream_loader.h, as rows of batches.
class Loader : public StreamLoader<Stream> {
 public:
  // Starts the threads. Throws as Corpus does.
  Loader(CorpusOptions corpus, const Encoder& encoder, const LoaderOptions& options);
  Loader(const std::vector<MixEntry>& sources, std::vector<MixturePiece> weights, const Encoder& encoder,
         const LoaderOptions& options);

  // The next batch; nothing at the end of finite data. The last batch of finite
  // data is filled up with ignored rows; so is the rest of a remainder's row.
  // Throws what a thread has thrown while making this batch, again in later
  // calls.
  std::optional<Batch> next();

  const LoaderOptions& options() const { return options_; }

 private:
  Loader(LoaderSources sources, const LoaderOptions& options);
  std::string why_no_sample() const override;

  LoaderOptions options_;
};

}  // namespace titanium::data
