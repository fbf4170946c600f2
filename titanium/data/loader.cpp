#include "titanium/data/loader.h"

#include <chrono>

#include "titanium/base/error.h"
#include "titanium/base/log.h"

namespace titanium::data {
namespace {

// Leaves `document_starts` unsorted.
void write_row(const Sample& sample, int64_t row, Batch& batch) {
  const auto first = static_cast<size_t>(row * batch.seq_len);
  for (size_t i = 0; i + 1 < sample.tokens.size(); ++i) {
    batch.inputs[first + i] = sample.tokens[i];
    batch.labels[first + i] = sample.tokens[i + 1];
  }
  for (const int32_t start : sample.document_starts) {
    if (start < batch.seq_len) batch.document_starts.push_back(static_cast<int32_t>(first) + start);
  }
}

std::vector<std::unique_ptr<Corpus>> make_corpora(const std::vector<MixEntry>& sources, const Encoder& encoder) {
  std::vector<std::unique_ptr<Corpus>> corpora;
  for (const MixEntry& source : sources) corpora.push_back(std::make_unique<Corpus>(source.corpus, encoder));
  return corpora;
}

std::vector<AtEnd> ends_of(const std::vector<MixEntry>& sources) {
  std::vector<AtEnd> ends;
  for (const MixEntry& source : sources) ends.push_back(source.at_end);
  return ends;
}

}  // namespace

Batch ignored_batch(int64_t batch, int64_t seq_len) {
  const auto size = static_cast<size_t>(batch * seq_len);
  Batch ignored{.batch = batch,
                .seq_len = seq_len,
                .inputs = std::vector<int64_t>(size, 0),
                .labels = std::vector<int64_t>(size, kIgnoreIndex),
                .document_starts = {}};
  for (int64_t row = 0; row < batch; ++row) ignored.document_starts.push_back(static_cast<int32_t>(row * seq_len));
  return ignored;
}

Batch rows_of(const Batch& batch, int64_t first, int64_t count) {
  const int64_t begin = first * batch.seq_len, end = begin + count * batch.seq_len;
  const auto cut = [&](const std::vector<int64_t>& tokens) {
    return std::vector<int64_t>(tokens.begin() + begin, tokens.begin() + end);
  };
  Batch rows{.batch = count,
             .seq_len = batch.seq_len,
             .inputs = cut(batch.inputs),
             .labels = cut(batch.labels),
             .document_starts = {}};
  for (const int32_t start : batch.document_starts) {
    if (start >= begin && start < end) rows.document_starts.push_back(static_cast<int32_t>(start - begin));
  }
  return rows;
}

std::optional<std::pair<int64_t, int64_t>> Loader::Turns::take() {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.extract(waiting_.begin()).value();
}

Loader::Loader(CorpusOptions corpus, const Encoder& encoder, const LoaderOptions& options)
    : Loader(make_corpora({{.corpus = std::move(corpus)}}, encoder), {AtEnd::kDrop}, {{.weights = {1}}},
             /*ends_together=*/false, options) {}

Loader::Loader(std::vector<MixEntry> sources, std::vector<MixturePiece> weights, const Encoder& encoder,
               const LoaderOptions& options)
    : Loader(make_corpora(sources, encoder), ends_of(sources), std::move(weights), /*ends_together=*/true, options) {}

Loader::Loader(std::vector<std::unique_ptr<Corpus>> corpora, const std::vector<AtEnd>& ends,
               std::vector<MixturePiece> weights, bool ends_together, const LoaderOptions& options)
    : corpora_(std::move(corpora)),
      mixture_(std::move(weights), corpora_[0]->streams()),
      ends_together_(ends_together),
      options_(options) {
  for (size_t k = 0; k < corpora_.size(); ++k) sources_.push_back({corpora_[k].get(), ends[k]});
  TI_CHECK(options.batch >= 1, "A batch of {} samples is not possible. Use at least 1.", options.batch);
  TI_CHECK(options.packing.seq_len >= 1, "training.seq_len = {} must be at least 1.", options.packing.seq_len);
  TI_CHECK(options.num_workers >= 0, "dataloader.num_workers = {} must not be negative.", options.num_workers);
  TI_CHECK(options.prefetch_factor >= 1, "dataloader.prefetch_factor = {} must be at least 1.",
           options.prefetch_factor);
  rewind();
}

Loader::~Loader() { stop(); }

std::optional<Batch> Loader::next() {
  last_wait_seconds_ = 0;
  if (failure_) std::rethrow_exception(failure_);
  Batch batch = ignored_batch(options_.batch, options_.packing.seq_len);
  Positions delivered;
  int64_t rows = 0;
  while (rows < options_.batch && !ended_) {
    const auto turn = turns_.take();
    if (!turn) break;
    const auto [samples, stream] = *turn;
    Item item = take(worker_of(stream, workers_));
    if (item.error) {
      failure_ = item.error;
      std::rethrow_exception(failure_);
    }
    ended_ = !item.sample && ends_together_;
    if (!item.sample) continue;
    write_row(item.sample->sample, rows++, batch);
    MixedPosition& position = delivered.try_emplace(stream, positions_.at(stream)).first->second;
    position.samples = samples + 1;
    position.sources[item.sample->source] = item.sample->sample.after;
    for (const size_t source : item.sample->ended) position.sources[source].ended = true;
    turns_.add(samples + 1, stream);
  }
  if (rows == 0 || ended_) {  // a mix has no batches that are not full
    log_end();
    return std::nullopt;
  }
  for (auto& [stream, position] : delivered) positions_[stream] = std::move(position);
  std::ranges::sort(batch.document_starts);
  return batch;
}

void Loader::log_end() {
  if (std::exchange(end_logged_, true)) return;
  const std::string& name = corpora_[0]->options().name;
  if (ends_together_) {
    log_warning("The mix of {} sources has run out of data in one of its streams", corpora_.size());
    return;
  }
  log_warning("Dataset {} has run out of data", name);
  const bool any =
      std::any_of(positions_.begin(), positions_.end(), [](const auto& at) { return at.second.samples > 0; });
  if (!any)
    log_warning(
        "Dataset {} has no sample: each of its {} data streams has "
        "fewer than {} tokens. Use a shorter seq_len or "
        "fewer data_streams",
        name, streams(), options_.packing.seq_len + 1);
}

LoaderState Loader::state() const {
  LoaderState state{.streams = streams(), .seq_len = options_.packing.seq_len, .turns = {}, .sources = {}};
  for (const auto& corpus : corpora_)
    state.sources.push_back({.name = corpus->options().name,
                             .fingerprint = corpus->fingerprint(),
                             .order = corpus->order().name(),
                             .positions = {}});
  const Positions first = first_positions();
  for (const auto& [stream, position] : positions_) {
    state.turns[stream] = position.samples;
    for (size_t k = 0; k < corpora_.size(); ++k)
      if (position.sources[k] != first.at(stream).sources[k]) state.sources[k].positions[stream] = position.sources[k];
  }
  return state;
}

std::vector<std::pair<std::string, int64_t>> Loader::samples_by_source() const {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (size_t k = 0; k < corpora_.size(); ++k) {
    int64_t samples = 0;
    for (const auto& [stream, position] : positions_) samples += position.sources[k].samples;
    counts.emplace_back(corpora_[k]->options().name, samples);
  }
  return counts;
}

int64_t Loader::bad_records() const {
  int64_t count = 0;
  for (const auto& corpus : corpora_) count += corpus->bad_records();
  return count;
}

// A single source may have got another name.
const SourceState* Loader::find_saved(const LoaderState& state, size_t source) const {
  if (!ends_together_ && state.sources.size() == 1) return &state.sources[0];
  const auto found = std::ranges::find(state.sources, corpora_[source]->options().name, &SourceState::name);
  return found == state.sources.end() ? nullptr : &*found;
}

void Loader::check_state(const LoaderState& state) const {
  TI_CHECK(state.streams == streams(),
           "The saved data position has {} data streams, this run has {}. Set "
           "training.data_streams = {}.",
           state.streams, streams(), state.streams);
  TI_CHECK(state.seq_len == options_.packing.seq_len,
           "The saved data position is for training.seq_len = {}, this run has "
           "{}. Use {}, or start the data from the "
           "beginning.",
           state.seq_len, options_.packing.seq_len, state.seq_len);
  for (size_t k = 0; k < corpora_.size(); ++k) {
    const SourceState* saved = find_saved(state, k);
    if (saved == nullptr) continue;
    const Corpus& corpus = *corpora_[k];
    TI_CHECK(saved->fingerprint == corpus.fingerprint(),
             "The files of dataset {} at {} are not those of the saved data "
             "position: names or sizes differ. Restore "
             "them, or start the data from the beginning.",
             corpus.options().name, corpus.options().path.string());
    const auto spelled = [](const std::string& order) { return order.empty() ? "not shuffled" : order; };
    TI_CHECK(saved->order == corpus.order().name(),
             "The saved data position of dataset {} is {}, and this run has it "
             "{}. Set training.shuffle, "
             "training.shuffle_seed and training.shuffle_window as they were.",
             corpus.options().name, spelled(saved->order), spelled(corpus.order().name()));
  }
}

void Loader::log_changes(const LoaderState& state) const {
  int64_t saved = 0;
  for (size_t k = 0; k < corpora_.size(); ++k) {
    if (find_saved(state, k) != nullptr) {
      ++saved;
    } else {
      log_warning(
          "Source {} is not part of the saved data position and begins "
          "with its first record",
          corpora_[k]->options().name);
    }
  }
  if (saved == static_cast<int64_t>(state.sources.size())) return;
  for (const SourceState& source : state.sources) {
    const bool kept =
        std::ranges::any_of(corpora_, [&](const auto& corpus) { return corpus->options().name == source.name; });
    int64_t samples = 0;
    for (const auto& [stream, at] : source.positions) samples += at.samples;
    if (!kept) log_warning("Source {} of the saved data position is left out after {} samples", source.name, samples);
  }
}

void Loader::load(const LoaderState& state) {
  check_state(state);
  Positions own = first_positions();
  for (auto& [stream, position] : own) {
    const auto turn = state.turns.find(stream);
    TI_CHECK(turn != state.turns.end(),
             "The saved data position lacks stream {}. Merge the states of all "
             "ranks before loading.",
             stream);
    position.samples = turn->second;
    for (size_t k = 0; k < corpora_.size(); ++k) {
      const SourceState* saved = find_saved(state, k);
      const auto found = saved ? saved->positions.find(stream) : std::map<int64_t, StreamPosition>::const_iterator();
      if (saved == nullptr || found == saved->positions.end()) continue;
      corpora_[k]->add_anchor(found->second.entrance);
      position.sources[k] = found->second;
      // A source that has ended, and now has more epochs or begins again, goes
      // on.
      if (!corpora_[k]->is_last_pass(found->second.epoch)) position.sources[k].ended = false;
    }
  }
  restart(std::move(own));
  log_changes(state);
}

Loader::Positions Loader::first_positions() const {
  Positions first;
  for (const int64_t stream : corpora_[0]->owned_streams())
    first[stream] = {.samples = 0, .sources = std::vector<StreamPosition>(corpora_.size(), {.record = stream})};
  return first;
}

void Loader::rewind() { restart(first_positions()); }

void Loader::restart(Positions positions) {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(options_.num_workers, 1));
  std::vector<std::unique_ptr<Worker>> workers(std::min(wanted, positions.size()));
  for (auto& worker : workers) worker = std::make_unique<Worker>();
  Turns turns;
  for (const auto& [stream, position] : positions) {
    Worker& worker = worker_of(stream, workers);
    worker.streams.try_emplace(stream, sources_, mixture_, options_.packing, stream, position);
    worker.turns.add(position.samples, stream);
    turns.add(position.samples, stream);
  }
  stop();
  workers_ = std::move(workers);
  turns_ = std::move(turns);
  positions_ = std::move(positions);
  failure_ = nullptr;
  end_logged_ = false;
  ended_ = false;
  for (auto& worker : workers_)
    worker->thread = std::jthread([this, &worker = *worker](const std::stop_token& stop) { work(worker, stop); });
}

void Loader::stop() {
  for (auto& worker : workers_) worker->thread.request_stop();
  workers_.clear();  // joins
}

void Loader::work(Worker& worker, const std::stop_token& stop) const {
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

void Loader::put(Worker& worker, const std::stop_token& stop, Item item) const {
  const auto limit = static_cast<size_t>(options_.prefetch_factor * options_.batch);
  std::unique_lock lock(worker.mutex);
  if (!worker.changed.wait(lock, stop, [&] { return worker.ready.size() < limit; })) throw Cancelled{};
  worker.ready.push_back(std::move(item));
  lock.unlock();
  worker.changed.notify_one();
}

Loader::Item Loader::take(Worker& worker) {
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

Loader::Worker& Loader::worker_of(int64_t stream, const std::vector<std::unique_ptr<Worker>>& workers) const {
  return *workers[static_cast<size_t>(stream / corpora_[0]->options().ranks) % workers.size()];
}

}  // namespace titanium::data
