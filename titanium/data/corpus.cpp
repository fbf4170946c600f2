#include "titanium/data/corpus.h"

#include <limits>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/data/document.h"
#include "titanium/remote/transport/url.h"

namespace titanium::data {
namespace {

constexpr int64_t kMaxStreams = int64_t{1} << 16;
constexpr size_t kShareOfReadingAhead = 8;  // of the memory of a source at an address; the cache has the rest

// The first ten of what is counted have a line in the log, then every thousandth.
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

}  // namespace

Corpus::Corpus(CorpusOptions options, Encoder encoder)
    : options_(checked(std::move(options))),
      encoder_(std::move(encoder)),
      files_(find_source_files(options_.path, options_.skip_bad_records)),
      fingerprint_(data::fingerprint(files_)) {
  check_formats();
  if (!open_lanes()) open_records();
  settle_order();
}

RecordSourceOptions Corpus::source_options() const {
  const size_t reading_ahead =
      remote::is_url(options_.path.string()) ? options_.cache_bytes / kShareOfReadingAhead : size_t{0};
  return {.reading = {.ownership = {options_.rank, options_.ranks},
                      .max_record_bytes = options_.max_record_bytes,
                      .text_field = options_.text_field,
                      .token_dtype = options_.token_dtype,
                      .memory_bytes = static_cast<int64_t>(reading_ahead),
                      .whole_samples = options_.images},
          .allow_empty_files = options_.skip_bad_records,
          .cache_bytes = options_.cache_bytes - reading_ahead,
          .max_readers = options_.max_readers,
          .held_bytes = options_.held_bytes};
}

// False where the data is dealt by records.
bool Corpus::open_lanes() {
  const RecordSourceOptions source = source_options();
  std::optional<StripedFiles> striped;
  if (options_.striped_as) {
    const Striping& saved = *options_.striped_as;
    TI_CHECK(saved.lanes >= 1 && options_.streams % saved.lanes == 0 && saved.block_bytes >= 0,
             "The saved data position of dataset {} is damaged: {} lanes for {} streams. Use another checkpoint.",
             options_.name, saved.lanes, options_.streams);
    if (saved.by_blocks()) striped = StripedFiles{saved, find_blocks(files_, saved.block_bytes, source.reading)};
  } else {
    striped = choose_lanes(source);
  }
  if (!striped) return false;
  streams_ = options_.streams;
  striping_ = striped->striping;
  lanes_ = std::make_unique<Lanes>(
      files_, *std::move(striped),
      LanesOptions{.source = source, .streams = options_.streams, .shuffle_key = shuffle_key()});
  return true;
}

std::optional<uint64_t> Corpus::shuffle_key() const {
  if (!options_.shuffle) return std::nullopt;
  return mixed_bits(static_cast<uint64_t>(options_.shuffle_seed)) ^ std::stoull(fingerprint_, nullptr, 16);
}

std::optional<StripedFiles> Corpus::choose_lanes(const RecordSourceOptions& source) const {
  const bool automatic = options_.striping == StripingChoice::kAuto;
  const bool permutes_all = options_.shuffle && is_indexed();  // which is the better shuffle, and skips as well
  // Images that were prepared have other files than those that they were made from, and the same samples.
  if (options_.striping == StripingChoice::kRecords || (automatic && (permutes_all || options_.images)))
    return std::nullopt;
  StripedFiles striped = choose_striping(files_,
                                         {.choice = options_.striping,
                                          .streams = options_.streams,
                                          .lanes = options_.most_lanes,
                                          .block_bytes = options_.block_bytes},
                                         source.reading);
  bool fits = striped.striping.by_blocks();
  if (fits) {
    RecordSourceOptions little = source;
    little.reading.ownership = {};
    little.reading.memory_bytes = ReadOptions{}.block_bytes;  // only the first records are read
    little.reading.block_bytes = int64_t{64} << 10;
    RecordSource first(files_, little);
    fits = first.count_up_to(options_.streams) == options_.streams;
    if (fits && automatic) {
      const auto next = first.read(options_.streams);
      fits = next && has_many_records(striped, options_.streams, shuffle_key(), next->block->begin);
    }
  }
  TI_CHECK(fits || automatic,
           "Dataset {} cannot be dealt by blocks: it has fewer records than data streams, or too little data that can "
           "be skipped (a compressed file or an archive is one block, and no block may be more than an eighth of the "
           "data). Set training.data_striping to \"auto\" or \"records\".",
           options_.name);
  return fits ? std::optional(std::move(striped)) : std::nullopt;
}

void Corpus::open_records() {
  source_ = open(/*keep_all=*/options_.shuffle);
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
}

std::shared_ptr<RecordSource> Corpus::open(bool keep_all) const {
  RecordSourceOptions source = source_options();
  if (keep_all) source.reading.ownership = {};
  if (options_.shuffle) source.reading.block_records = 1;
  return std::make_shared<RecordSource>(files_, source);
}

std::shared_ptr<RecordSource> Corpus::source_at(int64_t place, int64_t pass) {
  return lanes_ ? lanes_->lane_of(place % streams_, pass) : source_;
}

std::unique_ptr<Corpus> Corpus::striped_as(const Striping& striping) const {
  CorpusOptions options = options_;
  options.striped_as = striping;
  return std::make_unique<Corpus>(std::move(options), encoder_);
}

ReadingPlan Corpus::reading_plan() const {
  if (lanes_) return lanes_->plan();
  ReadingPlan plan;
  for (const SourceFile& file : files_) plan.bytes += file.size;
  plan.least_bytes = plan.most_bytes = is_indexed() ? plan.bytes / options_.ranks : plan.bytes;
  return plan;
}

bool Corpus::is_indexed() const {
  return std::ranges::all_of(files_, [](const SourceFile& file) { return file.format->is_indexed(); });
}

void Corpus::settle_order() {
  if (!options_.shuffle) return;
  if (lanes_) {
    order_ = shuffled(std::nullopt);
    return;
  }
  std::optional<int64_t> records;
  if (known_records_ > 0) {
    records = known_records_ * copies_;
  } else if (is_indexed()) {
    records = source_->count_up_to(std::numeric_limits<int64_t>::max());
  } else if (const int64_t count = source_->count_up_to(options_.shuffle_window); count < options_.shuffle_window) {
    records = count;  // a window that is not full would leave streams without any
  }
  order_ = shuffled(records);
}

RecordOrder Corpus::shuffled(std::optional<int64_t> records) const {
  const uint64_t key = std::stoull(fingerprint_, nullptr, 16);
  // All lanes together have as many records in their windows as one that holds everything.
  const int64_t window = std::max<int64_t>(options_.shuffle_window / striping_.lanes, 2);
  return RecordOrder::shuffled(options_.shuffle_seed, key, records, window);
}

std::optional<RecordOrder> Corpus::order_of(const std::string& name) const {
  if (name == order_.name()) return order_;
  if (!options_.shuffle || lanes_ || known_records_ > 0 || is_indexed()) return std::nullopt;
  const RecordOrder windows = shuffled(std::nullopt);
  return name == windows.name() ? std::optional(windows) : std::nullopt;
}

void Corpus::check_formats() const {
  if (!options_.images) return;
  for (const SourceFile& file : files_)
    TI_CHECK(file.format->has_samples(),
             "Data file {} is {}, but dataset {} must hold images with captions. Use archives of WebDataset (.tar).",
             file.path.string(), file.format->name(), options_.name);
}

std::optional<Corpus::Found> Corpus::record(int64_t place, int64_t pass, const std::stop_token& stop) {
  const std::shared_ptr<RecordSource> source = source_at(place, pass);
  const int64_t lane = place % striping_.lanes, place_in_lane = place / striping_.lanes;
  int64_t record = order_.record(place_in_lane, pass, lane);
  if (known_records_ > 0) {
    if (place >= known_records_ * copies_) return std::nullopt;
    const bool beyond = options_.epochs > 0 && pass * copies_ + place / known_records_ >= options_.epochs;
    if (beyond) return std::nullopt;
    record %= known_records_;
  }
  auto found = source->read(record, stop);
  const std::optional<int64_t> window = order_.window_begin(place_in_lane);
  if (!found && window && source->count_up_to(*window + 1) > *window)
    return Found{.record = std::nullopt, .entrance = std::nullopt, .source = source};  // the last window is not full
  if (!found) return std::nullopt;
  const Anchor entrance = window ? source->anchor_before(*window) : found->entrance();
  return Found{.record = std::move(found), .entrance = entrance, .source = source};
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
  std::string storage;
  const std::string_view text = document_text(record, options_.text_field, storage);
  TI_CHECK(encoder_ != nullptr,
           "Dataset {} holds text, which needs a tokenizer. Set "
           "model.hf_assets_path to a folder that has one.",
           options_.name);
  try {
    return encoder_(text);
  } catch (const Error& error) {
    throw BadRecord(
        fmt::format("{}: this record cannot be tokenized: {} Repair or "
                    "remove it, or set "
                    "training.skip_bad_records to leave such records out.",
                    record.place(), error.what()));
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
