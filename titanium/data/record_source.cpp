#include "titanium/data/record_source.h"

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

constexpr size_t kMaxCursors = 8;

// Whether reading from `a` gets to later records sooner than reading from `b`.
bool is_farther(const Anchor& a, const Anchor& b) {
  return std::tie(a.record, a.file, a.offset) > std::tie(b.record, b.file, b.offset);
}

}  // namespace

RecordSource::RecordSource(const std::filesystem::path& path, const RecordSourceOptions& options)
    : options_(options), files_(find_source_files(path, options.allow_empty_files)) {
  remember({});
  if (files_.empty()) total_ = 0;
}

std::optional<Record> RecordSource::read(int64_t record, const std::stop_token& stop) {
  TI_ASSERT(options_.ownership.owns(record), "record {} belongs to another rank", record);
  const std::lock_guard lock(mutex_);
  const auto block = find_block(record, stop);
  if (block == nullptr) return std::nullopt;
  const int64_t ranks = options_.ownership.ranks;
  const int64_t first_owned =
      block->begin.record + (options_.ownership.rank + ranks - block->begin.record % ranks) % ranks;
  const Block::Entry& entry = block->entries.at(static_cast<size_t>((record - first_owned) / ranks));
  return Record{.block = block,
                .bytes = std::string_view(block->bytes).substr(entry.begin, entry.size),
                .file = &files_[static_cast<size_t>(block->begin.file)],
                .line = entry.line};
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
    fits = file.seekable() && anchor.offset < file.size;
    char before = 0;
    if (fits) open_byte_stream(file.path, file.compression, anchor.offset - 1)->read(&before, 1);
    fits = before == '\n';
  }
  TI_CHECK(fits,
           "The saved data position (record {}, file {}, byte {}) is not the beginning of a line of these files. "
           "Restore the files of the saved run, or start the data from the beginning.",
           anchor.record, anchor.file, anchor.offset);
  remember(anchor);
}

std::shared_ptr<const Block> RecordSource::find_block(int64_t record, const std::stop_token& stop) {
  for (;;) {
    if (stop.stop_requested()) throw Cancelled{};
    if (auto block = find_cached(record)) return block;
    if (total_ && record >= *total_) return nullptr;
    advance(cursor_towards(record));
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

// The cursor from which `record` is reached with the least reading: an open one or one opened at a known place.
BlockCursor& RecordSource::cursor_towards(int64_t record) {
  const Anchor& anchor = std::prev(anchors_.upper_bound(record))->second;
  auto best = cursors_.end();
  for (auto cursor = cursors_.begin(); cursor != cursors_.end(); ++cursor) {
    const Anchor& position = (*cursor)->position();
    if (position.record > record || is_farther(anchor, position)) continue;
    if (best == cursors_.end() || is_farther(position, (*best)->position())) best = cursor;
  }
  if (best != cursors_.end()) {
    cursors_.splice(cursors_.begin(), cursors_, best);
  } else {
    const SourceFile& file = files_[static_cast<size_t>(anchor.file)];
    cursors_.push_front(std::make_unique<BlockCursor>(file, anchor, options_.ownership, options_.max_record_bytes));
    if (cursors_.size() > kMaxCursors) cursors_.pop_back();
  }
  return *cursors_.front();
}

void RecordSource::advance(BlockCursor& cursor) {
  const auto close = [&] { std::erase_if(cursors_, [&](const auto& open) { return open.get() == &cursor; }); };
  std::shared_ptr<const Block> block;
  try {
    block = cursor.next();
  } catch (...) {  // it stopped inside a block, which nobody may continue
    close();
    throw;
  }
  const Anchor position = cursor.position();
  if (block->count > 0) cache(std::move(block));
  if (!cursor.at_end()) {
    if (files_[static_cast<size_t>(position.file)].seekable()) remember(position);
    return;
  }
  if (position.file + 1 == static_cast<int64_t>(files_.size())) {
    total_ = position.record;
  } else {
    remember({.record = position.record, .file = position.file + 1});
  }
  close();
}

void RecordSource::remember(const Anchor& anchor) {
  const auto [place, added] = anchors_.try_emplace(anchor.record, anchor);
  if (!added && is_farther(anchor, place->second)) place->second = anchor;
}

void RecordSource::cache(std::shared_ptr<const Block> block) {
  const int64_t first = block->begin.record;
  if (cache_.contains(first)) return;
  cached_bytes_ += block->memory();
  uses_.push_front(first);
  cache_.emplace(first, Cached{std::move(block), uses_.begin()});
  while (cached_bytes_ > options_.cache_bytes && cache_.size() > 1) {
    const auto oldest = cache_.find(uses_.back());
    cached_bytes_ -= oldest->second.block->memory();
    cache_.erase(oldest);
    uses_.pop_back();
  }
}

}  // namespace titanium::data
