// Samples of any kind, made by background threads and taken in an order that depends on the data alone.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <set>
#include <thread>

#include "titanium/data/loader_state.h"
#include "titanium/data/mixed_stream.h"
#include "titanium/remote/transport/lost_time.h"

namespace titanium::data {

// One source of a mix.
struct MixEntry {
  CorpusOptions corpus;
  AtEnd at_end = AtEnd::kDrop;
};

// The corpora of a loader: one alone, or those of a mix, which agree in streams and ranks.
struct LoaderSources {
  // Throw as Corpus does.
  static LoaderSources single(CorpusOptions corpus, const Encoder& encoder);
  // A mix ends when one of its streams does.
  static LoaderSources mix(const std::vector<MixEntry>& entries, std::vector<MixturePiece> weights,
                           const Encoder& encoder);

  std::vector<std::unique_ptr<Corpus>> corpora;
  std::vector<AtEnd> ends;
  std::vector<MixturePiece> weights;
  bool end_together = false;
};

// Sample order: streams take turns by (samples delivered, stream number); a finite stream that has ended is left out.
// Each thread works on streams of its own, and the caller collects in the order of turns, so what is delivered does not
// depend on the number of threads. One thread may call a loader at a time.
//
// `Stream` is a canonical stream (stream.h, image/image_stream.h): it has Options and Sample, is built from a corpus,
// options, its number and a position, and its next() gives samples with the position after each.
template <typename Stream>
class StreamLoader {
 public:
  using Sample = typename Stream::Sample;

  virtual ~StreamLoader();  // ends the threads, whatever they are doing, within one block of data or one document
  StreamLoader(const StreamLoader&) = delete;
  StreamLoader& operator=(const StreamLoader&) = delete;

  // Positions after the last batch that was returned; what was prefetched does not count.
  LoaderState state() const;

  // Goes on after `state`, which may hold the streams of more ranks than this one and come from another number of
  // ranks. Sources are told apart by name, a single one need not have the same. One that the state lacks begins with
  // its first record, and one that is only in the state is left out; both are logged. A source is dealt to streams as
  // the state has it (Note [Lanes]), unless the options ask for another way. Throws Error, and changes nothing, if
  // number of streams, seq_len, data files or the order of a source differ, or a stream is missing.
  void load(const LoaderState& state);

  // Samples that this rank's streams have delivered of each source since the beginning of the run.
  std::vector<std::pair<std::string, int64_t>> samples_by_source() const;

  void rewind();  // begins again with the first sample

  double last_wait_seconds() const { return last_wait_seconds_; }  // that the last batch waited for the threads
  int64_t streams() const { return sources_.corpora[0]->streams(); }
  // What the ranks read of each source in an epoch: "web: dealt by records, ...".
  std::vector<std::string> reading_plans() const;
  int64_t bad_records() const;
  const std::string& fingerprint() const { return sources_.corpora[0]->fingerprint(); }  // of the first source's files

 protected:
  struct Work {
    typename Stream::Options stream{};
    int64_t seq_len = 0;      // that saved positions are for; 0: a position does not depend on lengths
    int64_t num_workers = 0;  // threads; 0 means one as well
    int64_t ahead = 1;        // samples that each thread may be ahead
  };

  // Starts the threads.
  StreamLoader(LoaderSources sources, Work work);

  struct Taken {
    Sample sample;
    int64_t number = 0;  // of the sample in the run, over all ranks: turn * streams + stream
  };

  // The next `count` samples; fewer or none at the end of finite data, and none when a mix has not that many left.
  // Throws what a thread has thrown while making them, again in later calls. Reads that fail while it waits share the
  // time for that (OneWait), also over all calls inside one of the caller's.
  std::vector<Taken> take(int64_t count);

  const std::vector<std::unique_ptr<Corpus>>& corpora() const { return sources_.corpora; }

  // Why a data set that has records has no sample, for the log.
  virtual std::string why_no_sample() const = 0;

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
    std::optional<MixedSample<Sample>> sample;  // nothing: the stream has ended
    std::exception_ptr error;
  };

  struct Worker {
    std::map<int64_t, MixedStream<Stream>> streams;
    Turns turns;
    std::mutex mutex;  // guards `ready` and `failure`
    std::condition_variable_any changed;
    std::deque<Item> ready;
    std::exception_ptr failure;  // comes after all that is ready
    std::jthread thread;
  };

  using Positions = std::map<int64_t, MixedPosition>;
  using Corpora = std::vector<std::unique_ptr<Corpus>>;

  Positions first_positions() const;
  Corpora corpora_of(const LoaderState& state) const;
  void check_state(const LoaderState& state) const;
  void check_orders(const LoaderState& state) const;
  Positions positions_of(const LoaderState& state);
  const SourceState* find_saved(const LoaderState& state, size_t source) const;
  void log_changes(const LoaderState& state) const;
  void restart(Positions positions, const LoaderState* state);
  void stop();
  void log_end();
  void run(Worker& worker, const std::stop_token& stop) const;
  void put(Worker& worker, const std::stop_token& stop, Item item) const;
  Item take(Worker& worker);
  Worker& worker_of(int64_t stream, const std::vector<std::unique_ptr<Worker>>& workers) const;

  const std::shared_ptr<remote::LostTime> lost_ = std::make_shared<remote::LostTime>();  // by the threads
  LoaderSources sources_;
  std::vector<MixedSource> mixed_;
  Mixture mixture_;
  Work work_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Turns turns_;
  Positions positions_;
  bool ended_ = false;
  std::exception_ptr failure_;
  bool end_logged_ = false;
  double last_wait_seconds_ = 0;
};

}  // namespace titanium::data
