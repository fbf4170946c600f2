#include "titanium/data/record_source.h"

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

// Whether reading from `a` gets to later records sooner than reading from `b`.
bool is_farther(const Anchor& a, const Anchor& b) {
  return std::tie(a.record, a.file, a.offset) > std::tie(b.record, b.file, b.offset);
}

}  // namespace

RecordSource::RecordSource(const std::filesystem::path& path, const RecordSourceOptions& options)
    : RecordSource(find_source_files(path, options.allow_empty_files), options) {}

RecordSource::RecordSource(std::vector<SourceFile> files, const RecordSourceOptions& options)
    : options_(options), files_(std::move(files)), cache_bytes_(options.cache_bytes) {
  remember({});
  if (files_.empty()) total_ = 0;
}

std::optional<Record> RecordSource::read(int64_t record, const std::stop_token& stop) {
  TI_ASSERT(options_.reading.ownership.owns(record), "record {} belongs to another rank", record);
  const std::lock_guard lock(mutex_);
  trim_cache();
  const auto block = find_block(record, stop);
  if (block == nullptr) return std::nullopt;
  const int64_t ranks = options_.reading.ownership.ranks;
  const int64_t first_owned =
      block->begin.record + (options_.reading.ownership.rank + ranks - block->begin.record % ranks) % ranks;
  const Block::Entry& entry = block->entries.at(static_cast<size_t>((record - first_owned) / ranks));
  return Record{.block = block,
                .bytes = std::string_view(block->bytes).substr(entry.begin, entry.size),
                .file = &files_[static_cast<size_t>(block->begin.file)],
                .line = entry.line,
                .missing = entry.missing};
}

int64_t RecordSource::count_up_to(int64_t limit) {
  const std::lock_guard lock(mutex_);
  if (limit <= 0 || find_block(limit - 1, {}) != nullptr) return limit;
  return *total_;
}

void RecordSource::add_anchor(const Anchor& anchor) {
  const std::lock_guard lock(mutex_);
  if (anchor == Anchor{}) return;
  const bool known_file = anchor.file >= 0 && anchor.file < static_cast<int64_t>(files_.size());
  bool fits = known_file && anchor.record >= 0 && anchor.line >= 1 && anchor.offset >= 0;
  if (fits && anchor.offset > 0) {
    const SourceFile& file = files_[static_cast<size_t>(anchor.file)];
    fits = file.format->is_place(file, anchor);
  }
  TI_CHECK(fits,
           "The saved data position (record {}, file {}, offset {}) is not the "
           "beginning of a record of these files. "
           "Restore the files of the saved run, or start the data from the "
           "beginning.",
           anchor.record, anchor.file, anchor.offset);
  remember(anchor);
}

Anchor RecordSource::anchor_before(int64_t record) {
  const std::lock_guard lock(mutex_);
  return place_before(record);
}

const Anchor& RecordSource::place_before(int64_t record) const {
  const Anchor& beginning = std::prev(beginnings_.upper_bound(record))->second;
  const auto inside = places_.upper_bound(record);
  if (inside == places_.begin() || is_farther(beginning, std::prev(inside)->second)) return beginning;
  return std::prev(inside)->second;
}

std::shared_ptr<const Block> RecordSource::find_block(int64_t record, const std::stop_token& stop) {
  for (bool reads = false;; reads = true) {
    if (stop.stop_requested()) throw Cancelled{};
    if (auto block = find_cached(record)) {
      if (reads && !readers_.empty()) readers_.front()->settle(options_.held_bytes);
      return block;
    }
    if (total_ && record >= *total_) return nullptr;
    BlockReader& reader = reader_towards(record);
    reader.skip_towards(record);
    advance(reader);
  }
}

std::shared_ptr<const Block> RecordSource::find_cached(int64_t record) {
  auto found = cache_.upper_bound(record);
  if (found == cache_.begin()) return nullptr;
  --found;
  if (record >= found->second.block->end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return found->second.block;
}

// The reader from which `record` is reached with the least reading: an open one
// or one opened at a known place.
BlockReader& RecordSource::reader_towards(int64_t record) {
  const Anchor& anchor = place_before(record);
  auto best = readers_.end();
  for (auto reader = readers_.begin(); reader != readers_.end(); ++reader) {
    const Anchor& position = (*reader)->position();
    if ((*reader)->covers(record)) {
      best = reader;
      break;
    }
    if (position.record > record || is_farther(anchor, position)) continue;
    if (best == readers_.end() || is_farther(position, (*best)->position())) best = reader;
  }
  if (best != readers_.end()) {
    readers_.splice(readers_.begin(), readers_, best);
  } else {
    const SourceFile& file = files_[static_cast<size_t>(anchor.file)];
    readers_.push_front(open_blocks(file, anchor, options_.reading));
    if (readers_.size() > options_.max_readers) readers_.pop_back();
  }
  return *readers_.front();
}

void RecordSource::advance(BlockReader& reader) {
  const auto close = [&] { std::erase_if(readers_, [&](const auto& open) { return open.get() == &reader; }); };
  std::shared_ptr<const Block> block;
  try {
    block = reader.next();
  } catch (...) {  // it stopped inside a block, which nobody may continue
    close();
    throw;
  }
  const Anchor position = reader.position();
  if (block->count > 0) cache(std::move(block));
  if (!reader.at_end()) {
    if (reader.is_entrance()) remember(position);
    return;
  }
  if (position.file + 1 == static_cast<int64_t>(files_.size())) {
    total_ = position.record;
  } else {
    remember({.record = position.record, .file = position.file + 1});
    if (options_.forgets_places) forget_before(position.file);
  }
  close();
}

void RecordSource::remember(const Anchor& anchor) {
  auto& known = anchor.offset > 0 ? places_ : beginnings_;
  const auto [place, added] = known.try_emplace(anchor.record, anchor);
  if (!added && is_farther(anchor, place->second)) place->second = anchor;
}

// Where files begin stays known.
void RecordSource::forget_before(int64_t file) {
  std::erase_if(places_, [&](const auto& known) { return known.second.file < file; });
}

void RecordSource::cache(std::shared_ptr<const Block> block) {
  const int64_t first = block->begin.record;
  if (cache_.contains(first)) return;
  cached_bytes_ += block->memory();
  uses_.push_front(first);
  cache_.emplace(first, Cached{std::move(block), uses_.begin()});
  trim_cache();
}

void RecordSource::trim_cache() {
  while (cached_bytes_ > cache_bytes_ && cache_.size() > 1) {
    const auto oldest = cache_.find(uses_.back());
    cached_bytes_ -= oldest->second.block->memory();
    cache_.erase(oldest);
    uses_.pop_back();
  }
}

}  // namespace titanium::data
