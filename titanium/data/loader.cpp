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

Loader::Loader(CorpusOptions corpus, Encoder encoder, const LoaderOptions& options)
    : corpus_(std::move(corpus), std::move(encoder)), options_(options) {
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
  std::map<int64_t, StreamPosition> delivered;
  int64_t rows = 0;
  while (rows < options_.batch) {
    const auto turn = turns_.take();
    if (!turn) break;
    const auto [samples, stream] = *turn;
    Item item = take(worker_of(stream, workers_));
    if (item.error) {
      failure_ = item.error;
      std::rethrow_exception(failure_);
    }
    if (!item.sample) continue;
    write_row(*item.sample, rows++, batch);
    delivered[stream] = item.sample->after;
    turns_.add(samples + 1, stream);
  }
  if (rows == 0) {
    log_end();
    return std::nullopt;
  }
  for (const auto& [stream, position] : delivered) positions_[stream] = position;
  std::ranges::sort(batch.document_starts);
  return batch;
}

void Loader::log_end() {
  if (std::exchange(end_logged_, true)) return;
  log_warning("Dataset {} has run out of data", corpus_.options().name);
  const bool any =
      std::any_of(positions_.begin(), positions_.end(), [](const auto& at) { return at.second.samples > 0; });
  if (!any)
    log_warning(
        "Dataset {} has no sample: each of its {} data streams has fewer than {} tokens. Use a shorter seq_len or "
        "fewer data_streams",
        corpus_.options().name, corpus_.streams(), options_.packing.seq_len + 1);
}

LoaderState Loader::state() const {
  return {.streams = corpus_.streams(),
          .seq_len = options_.packing.seq_len,
          .fingerprint = corpus_.fingerprint(),
          .positions = positions_};
}

void Loader::load(const LoaderState& state) {
  TI_CHECK(state.streams == corpus_.streams(),
           "The saved data position has {} data streams, this run has {}. Set training.data_streams = {}.",
           state.streams, corpus_.streams(), state.streams);
  TI_CHECK(state.seq_len == options_.packing.seq_len,
           "The saved data position is for training.seq_len = {}, this run has {}. Use {}, or start the data from the "
           "beginning.",
           state.seq_len, options_.packing.seq_len, state.seq_len);
  TI_CHECK(state.fingerprint == corpus_.fingerprint(),
           "The files of dataset {} at {} are not those of the saved data position: names or sizes differ. Restore "
           "them, or start the data from the beginning.",
           corpus_.options().name, corpus_.options().path.string());
  std::map<int64_t, StreamPosition> own;
  for (const int64_t stream : corpus_.owned_streams()) {
    const auto found = state.positions.find(stream);
    TI_CHECK(found != state.positions.end(),
             "The saved data position lacks stream {}. Merge the states of all ranks before loading.", stream);
    corpus_.add_anchor(found->second.entrance);
    own.insert(*found);
  }
  restart(std::move(own));
}

void Loader::rewind() {
  std::map<int64_t, StreamPosition> first;
  for (const int64_t stream : corpus_.owned_streams()) first[stream] = {.record = stream};
  restart(std::move(first));
}

void Loader::restart(std::map<int64_t, StreamPosition> positions) {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(options_.num_workers, 1));
  std::vector<std::unique_ptr<Worker>> workers(std::min(wanted, positions.size()));
  for (auto& worker : workers) worker = std::make_unique<Worker>();
  Turns turns;
  for (const auto& [stream, position] : positions) {
    Worker& worker = worker_of(stream, workers);
    worker.streams.try_emplace(stream, corpus_, options_.packing, stream, position);
    worker.turns.add(position.samples, stream);
    turns.add(position.samples, stream);
  }
  stop();
  workers_ = std::move(workers);
  turns_ = std::move(turns);
  positions_ = std::move(positions);
  failure_ = nullptr;
  end_logged_ = false;
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
  return *workers[static_cast<size_t>(stream / corpus_.options().ranks) % workers.size()];
}

}  // namespace titanium::data
