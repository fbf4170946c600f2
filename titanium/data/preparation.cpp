#include "titanium/data/preparation.h"

#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "titanium/base/files/file.h"
#include "titanium/base/log.h"
#include "titanium/data/document.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

// Hidden, so that they are no data files.
constexpr const char* kDescription = ".prepare.json";
constexpr const char* kEndedParts = ".prepare.ended";

constexpr int64_t kParts = 256;
constexpr int64_t kLeastPart = int64_t{1} << 20;
constexpr int64_t kMostPart = int64_t{64} << 20;
constexpr size_t kCacheAlone = size_t{4} << 20;    // a part is read once, in its order
constexpr size_t kCacheShared = size_t{64} << 20;  // for each thread, where they are at different shards of one part
constexpr int64_t kReadingBytes = int64_t{64} << 20;
constexpr int64_t kCompressionRatio = 4;     // about
constexpr size_t kTextOfProgress = 1 << 20;  // after which it is told

// See Note [Parts of a preparation].
struct Part {
  std::vector<SourceFile> files;
  int64_t bytes = 0;

  // Of one that is being read:
  std::shared_ptr<RecordSource> source = nullptr;
  int64_t threads = 0;
  int64_t next_shard = 0;
  bool has_ended = false;  // no thread may begin another shard
  std::vector<int64_t> shards = {};
  int64_t told = 0;  // of its bytes, as progress
};

std::vector<Part> parts_of(const std::vector<SourceFile>& files, const ReadOptions& reading) {
  int64_t bytes = 0;
  for (const SourceFile& file : files) bytes += file.size;
  const int64_t wanted = std::clamp(bytes / kParts, kLeastPart, kMostPart);
  std::vector<Part> parts;
  for (const FileBlock& block : find_blocks(files, wanted, reading)) {
    if (parts.empty() || parts.back().bytes + block.part.bytes > wanted) parts.emplace_back();
    parts.back().files.push_back(files[static_cast<size_t>(block.file)]);
    parts.back().files.back().part = block.part;
    parts.back().bytes += block.part.bytes;
  }
  return parts;
}

// The shards of each part that has ended, from lines such as "3: 0 1 2". A line that a stopped preparation did not end
// is left out.
std::map<size_t, std::vector<int64_t>> read_ended_parts(const fs::path& path) {
  std::map<size_t, std::vector<int64_t>> ended;
  std::error_code none;
  if (!fs::exists(path, none)) return ended;
  const std::string content = read_file(path, "list of prepared parts");
  size_t begin = 0;
  for (size_t end = content.find('\n'); end != std::string::npos; begin = end + 1, end = content.find('\n', begin)) {
    std::istringstream line(content.substr(begin, end - begin));
    size_t part = 0;
    char colon = '\0';
    if (!(line >> part >> colon) || colon != ':') continue;
    std::vector<int64_t>& shards = ended[part];
    shards.clear();
    for (int64_t shard = 0; line >> shard;) shards.push_back(shard);
  }
  return ended;
}

class Worker {
 public:
  Worker(const Preparation& preparation, const Encoder& encoder,
         const std::function<void(int64_t done, int64_t total)>& progress)
      : preparation_(preparation),
        encoder_(encoder),
        progress_(progress),
        token_bytes_(preparation.vocab_size <= 65536 ? 2 : 4),
        files_(find_source_files(preparation.path, preparation.skip_bad_records)) {}

  PreparedCounts run() {
    check_folder();
    parts_ = parts_of(files_, preparation_.reading);
    for (const Part& part : parts_) total_ += part.bytes;
    progress_(0, total_);
    keep_ended_parts();
    {
      std::vector<std::jthread> threads;
      for (int64_t i = 0; i < preparation_.threads; ++i) threads.emplace_back([this] { work(); });
    }
    if (failure_) std::rethrow_exception(failure_);
    TI_CHECK(has_records_ || counts_.shards > 0, "Data at {} has no records. Name a file or folder that has some.",
             preparation_.path.string());
    return counts_;
  }

 private:
  fs::path shard_path(size_t part, int64_t shard) const {
    return preparation_.out / fmt::format("{:05}-{:05}.ds", part, shard);
  }

  void check_folder() const {
    const nlohmann::json description = {{"version", 2},
                                        {"data", fingerprint(files_)},
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
    if (fs::exists(shard_path(0, 0)) || fs::exists(preparation_.out / "00000.ds"))
      throw UsageError(
          fmt::format("{} holds data that was not prepared here. Name another folder.", preparation_.out.string()));
    write_file_atomically(path, description.dump());
  }

  // Of the parts that an earlier run has ended, those whose shards are all there are not read again.
  void keep_ended_parts() {
    for (const auto& [number, shards] : read_ended_parts(preparation_.out / kEndedParts)) {
      const auto is_there = [&](int64_t shard) { return fs::exists(shard_path(number, shard)); };
      if (number >= parts_.size() || !std::ranges::all_of(shards, is_there)) continue;
      Part& part = parts_[number];
      part.has_ended = true;
      counts_.shards += std::ssize(shards);
      counts_.kept_shards += std::ssize(shards);
      tell(part, part.bytes);
      has_records_ = true;
    }
  }

  void work() {
    try {
      while (Part* part = take_part()) {
        while (const auto shard = take_shard(*part)) make(*part, *shard);
        leave(*part);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  size_t number_of(const Part& part) const { return static_cast<size_t>(&part - parts_.data()); }

  // A part that nobody has begun, else the one that has the fewest threads.
  Part* take_part() {
    const std::lock_guard lock(mutex_);
    if (failed_) return nullptr;
    while (next_part_ < parts_.size() && parts_[next_part_].has_ended) ++next_part_;
    Part* taken = nullptr;
    if (next_part_ < parts_.size()) {
      taken = &parts_[next_part_++];
      ReadOptions reading = preparation_.reading;
      reading.memory_bytes = kReadingBytes;
      taken->source = std::make_shared<RecordSource>(
          taken->files, RecordSourceOptions{.reading = reading,
                                            .cache_bytes = kCacheAlone,
                                            .max_readers = static_cast<size_t>(preparation_.threads) + 1});
    } else {
      for (Part& part : parts_) {
        const bool shared = part.threads > 0 && !part.has_ended;
        if (shared && (taken == nullptr || part.threads < taken->threads)) taken = &part;
      }
      if (taken == nullptr) return nullptr;
      taken->source->set_cache_bytes(kCacheShared * static_cast<size_t>(taken->threads + 1));
    }
    ++taken->threads;
    return taken;
  }

  std::optional<int64_t> take_shard(Part& part) {
    const std::lock_guard lock(mutex_);
    if (part.has_ended || failed_) return std::nullopt;
    return part.next_shard++;
  }

  // The last thread of a part that has ended closes it.
  void leave(Part& part) {
    const std::lock_guard lock(mutex_);
    if (--part.threads > 0 || failed_) return;
    part.source.reset();
    std::ranges::sort(part.shards);
    std::ofstream ended(preparation_.out / kEndedParts, std::ios::app | std::ios::binary);
    ended << fmt::format("{}: {}\n", number_of(part), fmt::join(part.shards, " ")) << std::flush;
    TI_CHECK(ended.good(), "{} cannot be written. Check permissions and free space.",
             (preparation_.out / kEndedParts).string());
    tell(part, part.bytes);
  }

  void tell(Part& part, int64_t bytes) {
    bytes = std::min(bytes, part.bytes);
    done_ += std::max<int64_t>(bytes - part.told, 0);
    part.told = std::max(part.told, bytes);
    progress_(done_, total_);
  }

  void make(Part& part, int64_t shard) {
    const fs::path path = shard_path(number_of(part), shard);
    PreparedCounts made;
    bool is_there = fs::exists(path);
    if (is_there) {
      made.kept_shards = 1;
    } else {
      is_there = write(part, shard, path, made);
    }
    const std::lock_guard lock(mutex_);
    if (is_there && !failed_) part.shards.push_back(shard);
    counts_.shards += is_there ? 1 : 0;
    counts_.kept_shards += made.kept_shards;
    counts_.documents += made.documents;
    counts_.tokens += made.tokens;
    counts_.bad_records += made.bad_records;
  }

  // False where the part has no such shard, or the shard no tokens.
  bool write(Part& part, int64_t shard, const fs::path& path, PreparedCounts& made) {
    std::string tokens, ends;
    size_t text = 0;
    const int64_t first = shard * preparation_.shard_records;
    for (int64_t i = first; i < first + preparation_.shard_records && !failed_; ++i) {
      const std::optional<Record> record = part.source->read(i);
      if (!record) {
        end(part);
        if (i == first) return false;
        break;
      }
      has_records_ = true;
      if (text += record->bytes.size(); text >= kTextOfProgress) count_text(part, std::exchange(text, 0));
      const std::optional<std::vector<int32_t>> document = document_of(*record, made);
      if (!document) continue;
      for (const int32_t token : *document) tokens.append(reinterpret_cast<const char*>(&token), token_bytes_);
      made.tokens += static_cast<int64_t>(document->size());
      ++made.documents;
      ends.append(reinterpret_cast<const char*>(&made.tokens), sizeof(made.tokens));
    }
    if (failed_) return false;
    if (tokens.empty()) {
      log_warning("Shard {} has no tokens and is left out", path.filename().string());
      return false;
    }
    // The tokens come last: without them an index is nothing.
    write_file_atomically(path.string() + ".index", ends);
    write_file_atomically(path, tokens);
    return true;
  }

  void end(Part& part) {
    const std::lock_guard lock(mutex_);
    part.has_ended = true;
  }

  void count_text(Part& part, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const bool plain = part.files[0].compression == Compression::kNone;
    tell(part, part.told + static_cast<int64_t>(bytes) / (plain ? 1 : kCompressionRatio));
  }

  std::optional<std::vector<int32_t>> document_of(const Record& record, PreparedCounts& made) const {
    try {
      if (has_tokens(record)) return document_tokens(record);
      std::string storage;
      return encode(record, document_text(record, preparation_.reading.text_field, storage));
    } catch (const Error& error) {
      if (!preparation_.skip_bad_records) throw;
      if (made.bad_records++ == 0) log_warning("A bad record is left out: {}", error.what());
      return std::nullopt;
    }
  }

  std::vector<int32_t> encode(const Record& record, std::string_view text) const {
    try {
      return encoder_(text);
    } catch (const Error& error) {
      throw BadRecord(fmt::format("{}: {}", record.place(), error.what()));
    }
  }

  const Preparation& preparation_;
  const Encoder& encoder_;
  const std::function<void(int64_t done, int64_t total)>& progress_;
  const size_t token_bytes_;
  const std::vector<SourceFile> files_;
  int64_t total_ = 0;  // bytes
  std::atomic<bool> failed_ = false;
  std::atomic<bool> has_records_ = false;
  std::mutex mutex_;  // guards all below
  std::vector<Part> parts_;
  size_t next_part_ = 0;
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
