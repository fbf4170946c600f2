// Batches of token ids, made by background threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <set>
#include <thread>

#include "titanium/data/loader_state.h"
#include "titanium/data/mixed_stream.h"

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

// Inputs 0, labels kIgnoreIndex: what a rank feeds when its finite data has
// ended before that of other ranks.
Batch ignored_batch(int64_t batch, int64_t seq_len);

// One source of a mix.
struct MixEntry {
  CorpusOptions corpus;
  AtEnd at_end = AtEnd::kDrop;
};

struct LoaderOptions {
  int64_t batch = 8;
  PackingOptions packing{};
  int64_t num_workers = 0;      // threads; 0 means one as well: tokenising never
                                // runs on the caller's thread
  int64_t prefetch_factor = 2;  // batches that each thread may be ahead
};

// Sample order: streams take turns by (samples delivered, stream number); a
// finite stream that has ended is left out. Each thread works on streams of its
// own, and the caller collects in the order of turns, so what is delivered does
// not depend on the number of threads. One thread may call a loader at a time.
class Loader {
 public:
  // Starts the threads. Throws as Corpus does.
  Loader(CorpusOptions corpus, const Encoder& encoder, const LoaderOptions& options);
  // A mix of sources, which agree in streams and ranks. It ends when one of its
  // streams does.
  Loader(std::vector<MixEntry> sources, std::vector<MixturePiece> weights, const Encoder& encoder,
         const LoaderOptions& options);
  ~Loader();  // ends the threads, whatever they are doing, within one block of
              // data or one document
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch; nothing at the end of finite data. The last batch of finite
  // data is filled up with ignored rows; so is the rest of a remainder's row.
  // Throws what a thread has thrown while making this batch, again in later
  // calls.
  std::optional<Batch> next();

  // Positions after the last batch that next() has returned; what was
  // prefetched does not count.
  LoaderState state() const;

  // Goes on after `state`, which may hold the streams of more ranks than this
  // one and come from another number of ranks. Sources are told apart by name,
  // a single one need not have the same. One that the state lacks begins with
  // its first record, and one that is only in the state is left out; both are
  // logged. Throws Error, and changes nothing, if number of streams, seq_len,
  // data files or the order of a source differ, or a stream is missing.
  void load(const LoaderState& state);

  // Samples that this rank's streams have delivered of each source since the
  // beginning of the run.
  std::vector<std::pair<std::string, int64_t>> samples_by_source() const;

  void rewind();  // begins again with the first sample

  double last_wait_seconds() const { return last_wait_seconds_; }  // that the last next() waited for the threads
  const LoaderOptions& options() const { return options_; }
  int64_t streams() const { return corpora_[0]->streams(); }
  int64_t bad_records() const;

 private:
  Loader(std::vector<std::unique_ptr<Corpus>> corpora, const std::vector<AtEnd>& ends,
         std::vector<MixturePiece> weights, bool ends_together, const LoaderOptions& options);

  // Whose turn it is: the stream with the fewest samples, then the lowest
  // number.
  class Turns {
   public:
    void add(int64_t samples, int64_t stream) { waiting_.emplace(samples, stream); }
    std::optional<std::pair<int64_t, int64_t>> take();

   private:
    std::set<std::pair<int64_t, int64_t>> waiting_;
  };

  struct Item {
    std::optional<MixedSample> sample;  // nothing: the stream has ended
    std::exception_ptr error;
  };

  struct Worker {
    std::map<int64_t, MixedStream> streams;
    Turns turns;
    std::mutex mutex;  // guards `ready` and `failure`
    std::condition_variable_any changed;
    std::deque<Item> ready;
    std::exception_ptr failure;  // comes after all that is ready
    std::jthread thread;
  };

  using Positions = std::map<int64_t, MixedPosition>;

  Positions first_positions() const;
  void check_state(const LoaderState& state) const;
  const SourceState* find_saved(const LoaderState& state, size_t source) const;
  void log_changes(const LoaderState& state) const;
  void restart(Positions positions);
  void stop();
  void log_end();
  void work(Worker& worker, const std::stop_token& stop) const;
  void put(Worker& worker, const std::stop_token& stop, Item item) const;
  Item take(Worker& worker);
  Worker& worker_of(int64_t stream, const std::vector<std::unique_ptr<Worker>>& workers) const;

  std::vector<std::unique_ptr<Corpus>> corpora_;
  std::vector<MixedSource> sources_;
  Mixture mixture_;
  bool ends_together_;  // a mix has ended when one of its streams has
  LoaderOptions options_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Turns turns_;
  Positions positions_;
  bool ended_ = false;
  std::exception_ptr failure_;
  bool end_logged_ = false;
  double last_wait_seconds_ = 0;
};

}  // namespace titanium::data
