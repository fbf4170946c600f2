// Batches of token ids, made by background threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <set>
#include <thread>

#include "titanium/data/loader_state.h"

namespace titanium::data {

inline constexpr int64_t kIgnoreIndex = -100;  // a label that does not count

struct Batch {
  int64_t batch = 0;
  int64_t seq_len = 0;
  std::vector<int64_t> inputs;  // [batch * seq_len]
  std::vector<int64_t> labels;  // [batch * seq_len], the token that follows each input
  // The first input of every document, ascending, counted over all inputs: Note [Document starts].
  std::vector<int32_t> document_starts;
};

// Rows [first, first + count) of a batch.
Batch rows_of(const Batch& batch, int64_t first, int64_t count);

// Inputs 0, labels kIgnoreIndex: what a rank feeds when its finite data has ended before that of other ranks.
Batch ignored_batch(int64_t batch, int64_t seq_len);

struct LoaderOptions {
  int64_t batch = 8;
  PackingOptions packing{};
  int64_t num_workers = 0;      // threads; 0 means one as well: tokenising never runs on the caller's thread
  int64_t prefetch_factor = 2;  // batches that each thread may be ahead
};

// Sample order: streams take turns by (samples delivered, stream number); a finite stream that has ended is left out.
// Each thread works on streams of its own, and the caller collects in the order of turns, so what is delivered does not
// depend on the number of threads. One thread may call a loader at a time.
class Loader {
 public:
  // Starts the threads. Throws as Corpus does.
  Loader(CorpusOptions corpus, Encoder encoder, const LoaderOptions& options);
  ~Loader();  // ends the threads, whatever they are doing, within one block of data or one document
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch; nothing at the end of finite data. The last batch of finite data is filled up with ignored rows; so
  // is the rest of a remainder's row. Throws what a thread has thrown while making this batch, again in later calls.
  std::optional<Batch> next();

  // Positions after the last batch that next() has returned; what was prefetched does not count.
  LoaderState state() const;

  // Goes on after `state`, which may hold the streams of more ranks than this one and come from another number of
  // ranks. Throws Error, and changes nothing, if number of streams, seq_len or data files differ or a stream is
  // missing.
  void load(const LoaderState& state);

  void rewind();  // begins again with the first sample

  double last_wait_seconds() const { return last_wait_seconds_; }  // that the last next() waited for the threads
  const LoaderOptions& options() const { return options_; }
  int64_t streams() const { return corpus_.streams(); }
  int64_t bad_records() const { return corpus_.bad_records(); }

 private:
  // Whose turn it is: the stream with the fewest samples, then the lowest number.
  class Turns {
   public:
    void add(int64_t samples, int64_t stream) { waiting_.emplace(samples, stream); }
    std::optional<std::pair<int64_t, int64_t>> take();

   private:
    std::set<std::pair<int64_t, int64_t>> waiting_;
  };

  struct Item {
    std::optional<Sample> sample;  // nothing: the stream has ended
    std::exception_ptr error;
  };

  struct Worker {
    std::map<int64_t, Stream> streams;
    Turns turns;
    std::mutex mutex;  // guards `ready` and `failure`
    std::condition_variable_any changed;
    std::deque<Item> ready;
    std::exception_ptr failure;  // comes after all that is ready
    std::jthread thread;
  };

  void restart(std::map<int64_t, StreamPosition> positions);
  void stop();
  void log_end();
  void work(Worker& worker, const std::stop_token& stop) const;
  void put(Worker& worker, const std::stop_token& stop, Item item) const;
  Item take(Worker& worker);
  Worker& worker_of(int64_t stream, const std::vector<std::unique_ptr<Worker>>& workers) const;

  Corpus corpus_;
  LoaderOptions options_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Turns turns_;
  std::map<int64_t, StreamPosition> positions_;
  std::exception_ptr failure_;
  bool end_logged_ = false;
  double last_wait_seconds_ = 0;
};

}  // namespace titanium::data
