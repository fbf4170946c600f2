#include "titanium/data/corpus.h"

#include <limits>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/data/document.h"

namespace titanium::data {
namespace {

constexpr int64_t kMaxStreams = int64_t{1} << 16;

// Of things that are counted: the first ten have a line in the log, then every thousandth.
bool has_log_line(int64_t count) { return count <= 10 || count % 1000 == 0; }

CorpusOptions checked(CorpusOptions options) {
  const int64_t streams = options.streams;
  if (streams < 1 || streams > kMaxStreams)
    throw UsageError(
        fmt::format("training.data_streams = {} is not a number from 1 to {}. Use 256.", streams, kMaxStreams));
  if (options.ranks < 1 || streams % options.ranks != 0)
    throw UsageError(
        fmt::format("training.data_streams = {} cannot be shared evenly by {} "
                    "data-parallel ranks. Use a multiple of the number of "
                    "ranks.",
                    streams, options.ranks));
  TI_ASSERT(options.rank >= 0 && options.rank < options.ranks, "rank {} of {}", options.rank, options.ranks);
  return options;
}

int64_t largest_divisor_up_to(int64_t number, int64_t limit) {
  int64_t divisor = std::min(number, limit);
  while (number % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

Corpus::Corpus(CorpusOptions options, Encoder encoder)
    : options_(checked(std::move(options))),
      encoder_(std::move(encoder)),
      source_(open(/*keep_all=*/options_.shuffle)),
      fingerprint_(data::fingerprint(source_->files())) {
  check_formats();
  const int64_t records = source_->count_up_to(options_.streams);
  TI_CHECK(records > 0, "Dataset {} at {} has no records. Name a file or folder that has some.", options_.name,
           options_.path.string());
  streams_ = options_.in_mix ? options_.streams : largest_divisor_up_to(options_.streams, records);
  TI_CHECK(streams_ % options_.ranks == 0,
           "Dataset {} has {} records, enough for {} data streams, but {} "
           "data-parallel ranks need the same number of "
           "streams each. Use more data or fewer ranks.",
           options_.name, records, streams_, options_.ranks);
  if (records < streams_) {
    known_records_ = records;
    copies_ = (streams_ + records - 1) / records;
    if (options_.epochs > 0) copies_ = std::min(copies_, options_.epochs);
    source_ = open(/*keep_all=*/true);
  }
  settle_order();
}

std::unique_ptr<RecordSource> Corpus::open(bool keep_all) const {
  const Ownership share{options_.rank, options_.ranks};
  return std::make_unique<RecordSource>(
      options_.path,
      RecordSourceOptions{.reading = {.ownership = keep_all ? Ownership{} : share,
                                      .max_record_bytes = options_.max_record_bytes,
                                      .text_field = options_.text_field,
                                      .token_dtype = options_.token_dtype,
                                      .block_records = options_.shuffle ? 1 : ReadOptions{}.block_records,
                                      .whole_samples = options_.images},
                          .allow_empty_files = options_.skip_bad_records,
                          .cache_bytes = options_.cache_bytes,
                          .max_readers = options_.max_readers});
}

void Corpus::settle_order() {
  if (!options_.shuffle) return;
  std::optional<int64_t> records;
  if (known_records_ > 0) {
    records = known_records_ * copies_;
  } else if (source_->is_indexed()) {
    records = source_->count_up_to(std::numeric_limits<int64_t>::max());
  } else if (const int64_t count = source_->count_up_to(options_.shuffle_window); count < options_.shuffle_window) {
    records = count;  // a window that is not full would leave streams without any
  }
  order_ = shuffled(records);
}

RecordOrder Corpus::shuffled(std::optional<int64_t> records) const {
  const uint64_t key = std::stoull(fingerprint_, nullptr, 16);
  return RecordOrder::shuffled(options_.shuffle_seed, key, records, options_.shuffle_window);
}

std::optional<RecordOrder> Corpus::order_of(const std::string& name) const {
  if (name == order_.name()) return order_;
  if (!options_.shuffle || known_records_ > 0 || source_->is_indexed()) return std::nullopt;
  const RecordOrder windows = shuffled(std::nullopt);
  return name == windows.name() ? std::optional(windows) : std::nullopt;
}

void Corpus::check_formats() const {
  if (!options_.images) return;
  for (const SourceFile& file : source_->files())
    TI_CHECK(file.format->has_samples(),
             "Data file {} is {}, but dataset {} must hold images with captions. Use archives of WebDataset (.tar).",
             file.path.string(), file.format->name(), options_.name);
}

std::optional<Corpus::Found> Corpus::record(int64_t place, int64_t pass, const std::stop_token& stop) {
  int64_t record = order_.record(place, pass);
  if (known_records_ > 0) {
    if (place >= known_records_ * copies_) return std::nullopt;
    const bool beyond = options_.epochs > 0 && pass * copies_ + place / known_records_ >= options_.epochs;
    if (beyond) return std::nullopt;
    record %= known_records_;
  }
  auto found = source_->read(record, stop);
  const std::optional<int64_t> window = order_.window_begin(place);
  if (!found && window && source_->count_up_to(*window + 1) > *window)
    return Found{.record = std::nullopt, .entrance = std::nullopt};  // the last window is not full
  if (!found) return std::nullopt;
  const Anchor entrance = window ? source_->anchor_before(*window) : found->entrance();
  return Found{.record = std::move(found), .entrance = entrance};
}

std::optional<Corpus::Document> Corpus::document(int64_t place, int64_t pass, const std::stop_token& stop) {
  const auto found = record(place, pass, stop);
  if (!found) return std::nullopt;
  Document document{.tokens = {}, .entrance = found->entrance};
  if (!found->record) return document;
  try {
    document.tokens = encode(*found->record);
  } catch (const BadRecord& error) {
    skip_bad_record(error.what());
  }
  return document;
}

std::vector<int32_t> Corpus::encode(const Record& record) const {
  if (has_tokens(record)) return document_tokens(record);
  const std::string text = document_text(record, options_.text_field);
  TI_CHECK(encoder_ != nullptr,
           "Dataset {} holds text, which needs a tokenizer. Set "
           "model.hf_assets_path to a folder that has one.",
           options_.name);
  try {
    return encoder_(text);
  } catch (const Error& error) {
    throw BadRecord(
        fmt::format("{}:{}: this record cannot be tokenized: {} Repair or "
                    "remove it, or set "
                    "training.skip_bad_records to leave such records out.",
                    record.file->path.string(), record.line, error.what()));
  }
}

void Corpus::note_relooped() {
  if (!relooped_.exchange(true)) log_warning("Dataset {} is being re-looped", options_.name);
}

std::vector<int64_t> Corpus::owned_streams() const {
  std::vector<int64_t> owned;
  for (int64_t stream = options_.rank; stream < streams_; stream += options_.ranks) owned.push_back(stream);
  return owned;
}

void Corpus::skip_bad_record(const std::string& reason) {
  if (!options_.skip_bad_records) throw BadRecord(reason);
  const int64_t count = ++bad_records_;
  if (has_log_line(count))
    log_warning("Dataset {}: {} bad records skipped so far, the last one is {}", options_.name, count, reason);
}

void Corpus::skip_small_image(const std::string& reason) {
  const int64_t count = ++small_images_;
  if (has_log_line(count))
    log_warning("Dataset {}: {} images skipped so far because they are too small, the last one is {}", options_.name,
                count, reason);
}

}  // namespace titanium::data
