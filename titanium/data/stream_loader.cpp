#include "titanium/data/stream_loader.h"

#include <chrono>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/data/image/image_stream.h"

namespace titanium::data {

LoaderSources LoaderSources::single(CorpusOptions corpus, const Encoder& encoder) {
  const remote::OneWait wait;
  LoaderSources sources{.corpora = {}, .ends = {AtEnd::kDrop}, .weights = {{.weights = {1}}}, .end_together = false};
  sources.corpora.push_back(std::make_unique<Corpus>(std::move(corpus), encoder));
  return sources;
}

LoaderSources LoaderSources::mix(const std::vector<MixEntry>& entries, std::vector<MixturePiece> weights,
                                 const Encoder& encoder) {
  const remote::OneWait wait;
  LoaderSources sources{.corpora = {}, .ends = {}, .weights = std::move(weights), .end_together = true};
  for (const MixEntry& entry : entries) {
    sources.corpora.push_back(std::make_unique<Corpus>(entry.corpus, encoder));
    sources.ends.push_back(entry.at_end);
  }
  return sources;
}

template <typename Stream>
std::optional<std::pair<int64_t, int64_t>> StreamLoader<Stream>::Turns::take() {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.extract(waiting_.begin()).value();
}

template <typename Stream>
StreamLoader<Stream>::StreamLoader(LoaderSources sources, Work work)
    : sources_(std::move(sources)),
      mixture_(std::move(sources_.weights), sources_.corpora[0]->streams()),
      work_(std::move(work)) {
  for (size_t k = 0; k < sources_.corpora.size(); ++k) mixed_.push_back({sources_.corpora[k].get(), sources_.ends[k]});
  TI_CHECK(work_.num_workers >= 0, "dataloader.num_workers = {} must not be negative.", work_.num_workers);
  TI_CHECK(work_.ahead >= 1, "dataloader.prefetch_factor must be at least 1.");
  rewind();
}

template <typename Stream>
StreamLoader<Stream>::~StreamLoader() {
  stop();
}

template <typename Stream>
std::vector<typename StreamLoader<Stream>::Taken> StreamLoader<Stream>::take(int64_t count) {
  last_wait_seconds_ = 0;
  if (failure_) std::rethrow_exception(failure_);
  const remote::WaitForThreads waiting(lost_);
  std::vector<Taken> taken;
  Positions delivered;
  while (std::ssize(taken) < count && !ended_) {
    const auto turn = turns_.take();
    if (!turn) break;
    const auto [samples, stream] = *turn;
    Item item = take(worker_of(stream, workers_));
    if (item.error) {
      failure_ = item.error;
      std::rethrow_exception(failure_);
    }
    ended_ = !item.sample && sources_.end_together;
    if (!item.sample) continue;
    MixedPosition& position = delivered.try_emplace(stream, positions_.at(stream)).first->second;
    position.samples = samples + 1;
    position.sources[item.sample->source] = item.sample->sample.after;
    for (const size_t source : item.sample->ended) position.sources[source].ended = true;
    turns_.add(samples + 1, stream);
    taken.push_back({std::move(item.sample->sample), samples * streams() + stream});
  }
  if (taken.empty() || ended_) {  // a mix has no batches that are not full
    log_end();
    return {};
  }
  for (auto& [stream, position] : delivered) positions_[stream] = std::move(position);
  return taken;
}

template <typename Stream>
void StreamLoader<Stream>::log_end() {
  if (std::exchange(end_logged_, true)) return;
  if (sources_.end_together) {
    log_warning("The mix of {} sources has run out of data in one of its streams", sources_.corpora.size());
    return;
  }
  const std::string& name = sources_.corpora[0]->options().name;
  log_warning("Dataset {} has run out of data", name);
  const bool any =
      std::any_of(positions_.begin(), positions_.end(), [](const auto& at) { return at.second.samples > 0; });
  if (!any) log_warning("Dataset {} has no sample: {}", name, why_no_sample());
}

template <typename Stream>
LoaderState StreamLoader<Stream>::state() const {
  LoaderState state{.streams = streams(), .seq_len = work_.seq_len, .turns = {}, .sources = {}};
  for (const auto& corpus : sources_.corpora)
    state.sources.push_back({.name = corpus->options().name,
                             .fingerprint = corpus->fingerprint(),
                             .order = corpus->order().name(),
                             .striping = corpus->striping(),
                             .positions = {}});
  const Positions first = first_positions();
  for (const auto& [stream, position] : positions_) {
    state.turns[stream] = position.samples;
    for (size_t k = 0; k < sources_.corpora.size(); ++k)
      if (position.sources[k] != first.at(stream).sources[k]) state.sources[k].positions[stream] = position.sources[k];
  }
  return state;
}

template <typename Stream>
std::vector<std::pair<std::string, int64_t>> StreamLoader<Stream>::samples_by_source() const {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (size_t k = 0; k < sources_.corpora.size(); ++k) {
    int64_t samples = 0;
    for (const auto& [stream, position] : positions_) samples += position.sources[k].samples;
    counts.emplace_back(sources_.corpora[k]->options().name, samples);
  }
  return counts;
}

template <typename Stream>
std::vector<std::string> StreamLoader<Stream>::reading_plans() const {
  std::vector<std::string> plans;
  for (const auto& corpus : sources_.corpora)
    plans.push_back(
        fmt::format("{}: {}", corpus->options().name, describe(corpus->reading_plan(), corpus->options().ranks)));
  return plans;
}

template <typename Stream>
int64_t StreamLoader<Stream>::bad_records() const {
  int64_t count = 0;
  for (const auto& corpus : sources_.corpora) count += corpus->bad_records();
  return count;
}

// A single source may have got another name.
template <typename Stream>
const SourceState* StreamLoader<Stream>::find_saved(const LoaderState& state, size_t source) const {
  if (!sources_.end_together && state.sources.size() == 1) return &state.sources[0];
  const auto found = std::ranges::find(state.sources, sources_.corpora[source]->options().name, &SourceState::name);
  return found == state.sources.end() ? nullptr : &*found;
}

template <typename Stream>
void StreamLoader<Stream>::check_state(const LoaderState& state) const {
  TI_CHECK(state.streams == streams(),
           "The saved data position has {} data streams, this run has {}. Set "
           "training.data_streams = {}.",
           state.streams, streams(), state.streams);
  TI_CHECK(state.seq_len == work_.seq_len,
           "The saved data position is for training.seq_len = {}, this run has "
           "{}. Use {}, or start the data from the "
           "beginning.",
           state.seq_len, work_.seq_len, state.seq_len);
  for (size_t k = 0; k < sources_.corpora.size(); ++k) {
    const SourceState* saved = find_saved(state, k);
    if (saved == nullptr) continue;
    const Corpus& corpus = *sources_.corpora[k];
    TI_CHECK(saved->fingerprint == corpus.fingerprint(),
             "The files of dataset {} at {} are not those of the saved data "
             "position: names or sizes differ. Restore "
             "them, or start the data from the beginning.",
             corpus.options().name, corpus.options().path.string());
    const StripingChoice choice = corpus.options().striping;
    const bool asked = choice != StripingChoice::kAuto;
    TI_CHECK(!asked || saved->striping.by_blocks() == (choice == StripingChoice::kBlocks),
             "The saved data position of dataset {} is dealt {}, and training.data_striping asks for {}. Set it to "
             "\"auto\" to go on with the saved run.",
             corpus.options().name, name_of(saved->striping), choice == StripingChoice::kBlocks ? "blocks" : "records");
  }
}

template <typename Stream>
void StreamLoader<Stream>::check_orders(const LoaderState& state) const {
  for (size_t k = 0; k < sources_.corpora.size(); ++k) {
    const SourceState* saved = find_saved(state, k);
    if (saved == nullptr) continue;
    const Corpus& corpus = *sources_.corpora[k];
    const auto spelled = [](const std::string& order) { return order.empty() ? "not shuffled" : order; };
    TI_CHECK(corpus.order_of(saved->order),
             "The saved data position of dataset {} is {}, and this run has it "
             "{}. Set training.shuffle, "
             "training.shuffle_seed and training.shuffle_window as they were.",
             corpus.options().name, spelled(saved->order), spelled(corpus.order().name()));
  }
}

template <typename Stream>
void StreamLoader<Stream>::log_changes(const LoaderState& state) const {
  int64_t saved = 0;
  for (size_t k = 0; k < sources_.corpora.size(); ++k) {
    if (find_saved(state, k) != nullptr) {
      ++saved;
    } else {
      log_warning(
          "Source {} is not part of the saved data position and begins "
          "with its first record",
          sources_.corpora[k]->options().name);
    }
  }
  if (saved == static_cast<int64_t>(state.sources.size())) return;
  for (const SourceState& source : state.sources) {
    const bool kept = std::ranges::any_of(sources_.corpora,
                                          [&](const auto& corpus) { return corpus->options().name == source.name; });
    int64_t samples = 0;
    for (const auto& [stream, at] : source.positions) samples += at.samples;
    if (!kept) log_warning("Source {} of the saved data position is left out after {} samples", source.name, samples);
  }
}

// Those that the state has dealt in another way; null for the others.
template <typename Stream>
typename StreamLoader<Stream>::Corpora StreamLoader<Stream>::corpora_of(const LoaderState& state) const {
  Corpora others(sources_.corpora.size());
  for (size_t k = 0; k < others.size(); ++k) {
    const Corpus& corpus = *sources_.corpora[k];
    const SourceState* saved = find_saved(state, k);
    if (saved == nullptr || saved->striping == corpus.striping()) continue;
    others[k] = corpus.striped_as(saved->striping);
    log_info("Dataset {} goes on as the saved run has it: {}", corpus.options().name,
             describe(others[k]->reading_plan(), corpus.options().ranks));
  }
  return others;
}

template <typename Stream>
void StreamLoader<Stream>::load(const LoaderState& state) {
  const remote::OneWait wait;
  check_state(state);
  Corpora others = corpora_of(state);
  const auto exchange = [&] {
    for (size_t k = 0; k < others.size(); ++k) {
      if (others[k]) std::swap(others[k], sources_.corpora[k]);
      mixed_[k].corpus = sources_.corpora[k].get();
    }
  };
  exchange();
  try {
    check_orders(state);
    restart(positions_of(state), &state);
  } catch (...) {
    exchange();
    throw;
  }
  log_changes(state);
}

template <typename Stream>
typename StreamLoader<Stream>::Positions StreamLoader<Stream>::positions_of(const LoaderState& state) {
  Positions own = first_positions();
  for (auto& [stream, position] : own) {
    const auto turn = state.turns.find(stream);
    TI_CHECK(turn != state.turns.end(),
             "The saved data position lacks stream {}. Merge the states of all "
             "ranks before loading.",
             stream);
    position.samples = turn->second;
    for (size_t k = 0; k < sources_.corpora.size(); ++k) {
      const SourceState* saved = find_saved(state, k);
      const auto found = saved ? saved->positions.find(stream) : std::map<int64_t, StreamPosition>::const_iterator();
      if (saved == nullptr || found == saved->positions.end()) continue;
      const StreamPosition& at = found->second;
      TI_CHECK(at.record >= 0 && at.record % streams() == stream,
               "The saved data position of stream {} is damaged: record {}, token {}. Use another checkpoint.", stream,
               at.record, at.token);
      sources_.corpora[k]->add_anchor(at.record, at.epoch, at.entrance);
      position.sources[k] = at;
      // A source that has ended, and now has more epochs or begins again, goes
      // on.
      if (!sources_.corpora[k]->is_last_pass(at.epoch)) position.sources[k].ended = false;
    }
  }
  return own;
}

template <typename Stream>
typename StreamLoader<Stream>::Positions StreamLoader<Stream>::first_positions() const {
  Positions first;
  for (const int64_t stream : sources_.corpora[0]->owned_streams())
    first[stream] = {.samples = 0, .sources = std::vector<StreamPosition>(sources_.corpora.size(), {.record = stream})};
  return first;
}

template <typename Stream>
void StreamLoader<Stream>::rewind() {
  restart(first_positions(), nullptr);
}

// Orders of sources become those of `state`, if there is one, while no thread reads.
template <typename Stream>
void StreamLoader<Stream>::restart(Positions positions, const LoaderState* state) {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(work_.num_workers, 1));
  std::vector<std::unique_ptr<Worker>> workers(std::min(wanted, positions.size()));
  for (auto& worker : workers) worker = std::make_unique<Worker>();
  Turns turns;
  for (const auto& [stream, position] : positions) {
    Worker& worker = worker_of(stream, workers);
    worker.streams.try_emplace(stream, mixed_, mixture_, work_.stream, stream, position);
    worker.turns.add(position.samples, stream);
    turns.add(position.samples, stream);
  }
  stop();
  for (size_t k = 0; state != nullptr && k < sources_.corpora.size(); ++k) {
    Corpus& corpus = *sources_.corpora[k];
    if (const SourceState* saved = find_saved(*state, k)) corpus.set_order(*corpus.order_of(saved->order));
  }
  workers_ = std::move(workers);
  turns_ = std::move(turns);
  positions_ = std::move(positions);
  failure_ = nullptr;
  end_logged_ = false;
  ended_ = false;
  for (auto& worker : workers_)
    worker->thread = std::jthread([this, &worker = *worker](const std::stop_token& stop) { run(worker, stop); });
}

template <typename Stream>
void StreamLoader<Stream>::stop() {
  for (auto& worker : workers_) worker->thread.request_stop();
  workers_.clear();  // joins
}

template <typename Stream>
void StreamLoader<Stream>::run(Worker& worker, const std::stop_token& stop) const {
  const remote::OneWait wait(lost_);
  try {
    while (const auto turn = worker.turns.take()) {
      const auto [samples, stream] = *turn;
      Item item{.sample = worker.streams.at(stream).next(stop), .error = nullptr};
      if (item.sample) worker.turns.add(samples + 1, stream);
      put(worker, stop, std::move(item));
    }
  } catch (const Cancelled&) {
  } catch (...) {  // allocates nothing: there may be no memory
    const std::lock_guard lock(worker.mutex);
    worker.failure = std::current_exception();
    worker.changed.notify_one();
  }
}

template <typename Stream>
void StreamLoader<Stream>::put(Worker& worker, const std::stop_token& stop, Item item) const {
  const auto limit = static_cast<size_t>(work_.ahead);
  std::unique_lock lock(worker.mutex);
  if (!worker.changed.wait(lock, stop, [&] { return worker.ready.size() < limit; })) throw Cancelled{};
  worker.ready.push_back(std::move(item));
  lock.unlock();
  worker.changed.notify_one();
}

template <typename Stream>
typename StreamLoader<Stream>::Item StreamLoader<Stream>::take(Worker& worker) {
  std::unique_lock lock(worker.mutex);
  if (worker.ready.empty()) {
    const auto begin = std::chrono::steady_clock::now();
    worker.changed.wait(lock, [&] { return !worker.ready.empty() || worker.failure; });
    last_wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (worker.ready.empty()) return {.sample = std::nullopt, .error = worker.failure};
  }
  Item item = std::move(worker.ready.front());
  worker.ready.pop_front();
  lock.unlock();
  worker.changed.notify_one();
  return item;
}

template <typename Stream>
typename StreamLoader<Stream>::Worker& StreamLoader<Stream>::worker_of(
    int64_t stream, const std::vector<std::unique_ptr<Worker>>& workers) const {
  return *workers[static_cast<size_t>(stream / sources_.corpora[0]->options().ranks) % workers.size()];
}

template class StreamLoader<Stream>;
template class StreamLoader<ImageStream>;

}  // namespace titanium::data
