#include "titanium/data/preparation.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "titanium/base/file.h"
#include "titanium/base/log.h"
#include "titanium/data/document.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDescription = ".prepare.json";  // hidden, so that it is no data file
constexpr size_t kCacheBytes = size_t{64} << 20;       // records are read once

class Worker {
 public:
  Worker(const Preparation& preparation, const Encoder& encoder,
         const std::function<void(int64_t done, int64_t total)>& progress)
      : preparation_(preparation),
        encoder_(encoder),
        progress_(progress),
        token_bytes_(preparation.vocab_size <= 65536 ? 2 : 4),
        source_(preparation.path, {.reading = preparation.reading,
                                   .allow_empty_files = preparation.skip_bad_records,
                                   .cache_bytes = kCacheBytes * static_cast<size_t>(preparation.threads),
                                   .max_readers = static_cast<size_t>(preparation.threads) + 1}) {}

  PreparedCounts run() {
    check_folder();
    records_ = source_.count_up_to(std::numeric_limits<int64_t>::max());
    TI_CHECK(records_ > 0, "Data at {} has no records. Name a file or folder that has some.",
             preparation_.path.string());
    counts_.shards = (records_ + preparation_.shard_records - 1) / preparation_.shard_records;
    {
      std::vector<std::jthread> threads;
      for (int64_t i = 0; i < preparation_.threads; ++i) threads.emplace_back([this] { work(); });
    }
    if (failure_) std::rethrow_exception(failure_);
    return counts_;
  }

 private:
  fs::path shard_path(int64_t shard) const { return preparation_.out / fmt::format("{:05}.ds", shard); }

  void check_folder() const {
    const nlohmann::json description = {{"data", fingerprint(source_.files())},
                                        {"tokenizer", preparation_.tokenizer},
                                        {"text_field", preparation_.reading.text_field},
                                        {"shard_records", preparation_.shard_records},
                                        {"token_bytes", token_bytes_}};
    const fs::path path = preparation_.out / kDescription;
    if (fs::exists(path)) {
      if (read_file(path, "description of prepared data") == description.dump()) return;
      throw UsageError(fmt::format(
          "{} holds shards of other data, another tokenizer or other options. Name another folder or empty this one.",
          preparation_.out.string()));
    }
    if (fs::exists(shard_path(0)))
      throw UsageError(
          fmt::format("{} holds data that was not prepared here. Name another folder.", preparation_.out.string()));
    write_file_atomically(path, description.dump());
  }

  void work() {
    try {
      for (int64_t shard = next_shard_++; shard < counts_.shards && !failed_; shard = next_shard_++) make(shard);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  void make(int64_t shard) {
    const int64_t first = shard * preparation_.shard_records;
    const int64_t end = std::min(first + preparation_.shard_records, records_);
    const bool kept = fs::exists(shard_path(shard));
    PreparedCounts made{.kept_shards = kept ? 1 : 0};
    if (!kept) write(shard, first, end, made);
    const std::lock_guard lock(mutex_);
    counts_.kept_shards += made.kept_shards;
    counts_.documents += made.documents;
    counts_.tokens += made.tokens;
    counts_.bad_records += made.bad_records;
    done_ += end - first;
    progress_(done_, records_);
  }

  void write(int64_t shard, int64_t first, int64_t end, PreparedCounts& made) {
    std::string tokens, ends;
    for (int64_t i = first; i < end && !failed_; ++i) {
      const std::optional<std::vector<int32_t>> document = document_of(*source_.read(i), made);
      if (!document) continue;
      for (const int32_t token : *document) tokens.append(reinterpret_cast<const char*>(&token), token_bytes_);
      made.tokens += static_cast<int64_t>(document->size());
      ++made.documents;
      ends.append(reinterpret_cast<const char*>(&made.tokens), sizeof(made.tokens));
    }
    if (failed_) return;
    if (tokens.empty()) return log_warning("Shard {} has no tokens and is left out", shard);
    // The tokens come last: without them an index is nothing.
    write_file_atomically(shard_path(shard).string() + ".index", ends);
    write_file_atomically(shard_path(shard), tokens);
  }

  std::optional<std::vector<int32_t>> document_of(const Record& record, PreparedCounts& made) const {
    try {
      if (has_tokens(record)) return document_tokens(record);
      std::string storage;
      return encoder_(document_text(record, preparation_.reading.text_field, storage));
    } catch (const Error& error) {
      if (!preparation_.skip_bad_records) throw;
      if (made.bad_records++ == 0) log_warning("A bad record is left out: {}", error.what());
      return std::nullopt;
    }
  }

  const Preparation& preparation_;
  const Encoder& encoder_;
  const std::function<void(int64_t done, int64_t total)>& progress_;
  const size_t token_bytes_;
  RecordSource source_;
  int64_t records_ = 0;
  std::atomic<int64_t> next_shard_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;  // guards all below
  PreparedCounts counts_;
  int64_t done_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

PreparedCounts prepare(const Preparation& preparation, const Encoder& encoder,
                       const std::function<void(int64_t done, int64_t total)>& progress) {
  return Worker(preparation, encoder, progress).run();
}

}  // namespace titanium::data
