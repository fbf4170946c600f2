#include "titanium/data/lanes.h"

#include <algorithm>
#include <numeric>

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

constexpr size_t kMostPassesOpen = 8;

// Which records of a lane belong to a rank: those that streams of the rank read.
Ownership share_of(const Ownership& rank, int64_t lane, int64_t lanes) {
  const int64_t sharers = rank.ranks / std::gcd(lanes, rank.ranks);
  int64_t first = 0;
  while (first < sharers && (lane + lanes * first) % rank.ranks != rank.rank) ++first;
  TI_ASSERT(first < sharers, "rank {} of {} reads nothing of lane {}", rank.rank, rank.ranks, lane);
  return {.rank = first, .ranks = sharers};
}

int64_t lanes_of_rank(const Ownership& rank, int64_t lanes) { return lanes / std::gcd(lanes, rank.ranks); }

// The options of one lane: memory and readers are shared by the lanes that a rank reads from.
RecordSourceOptions options_of_lane(const LanesOptions& options, int64_t lane, int64_t lanes) {
  RecordSourceOptions source = options.source;
  const Ownership& rank = options.source.reading.ownership;
  const int64_t read = lanes_of_rank(rank, lanes);
  const int64_t passes = options.shuffle_key ? 2 : 1;  // that are open when one ends
  const int64_t memory = static_cast<int64_t>(source.cache_bytes) / (read * passes);
  const Ownership share = share_of(rank, lane, lanes);
  const int64_t streams = std::max<int64_t>(options.streams / lanes / share.ranks, 1);
  source.reading.ownership = options.shuffle_key ? Ownership{} : share;  // a shuffle moves records between streams
  source.max_readers = std::clamp<size_t>(8 * source.max_readers / static_cast<size_t>(read), 1, source.max_readers);
  source.reading.memory_bytes = std::max<int64_t>(source.reading.memory_bytes / (read * passes), 1);
  source.reading.block_bytes =
      std::clamp<int64_t>(memory / (4 * streams), int64_t{64} << 10, ReadOptions{}.block_bytes);
  source.forgets_places = true;
  return source;
}

}  // namespace

Lanes::Lanes(const std::vector<SourceFile>& files, StripedFiles striped, LanesOptions options)
    : files_(files), striped_(std::move(striped)), options_(std::move(options)) {}

std::shared_ptr<RecordSource> Lanes::lane_of(int64_t stream, int64_t pass) {
  if (!options_.shuffle_key) pass = 0;
  const std::lock_guard lock(mutex_);
  const int64_t number = stream % count();
  Lane& lane = lanes_[number];
  if (std::exchange(lane.passes[stream], pass) != pass) {
    const auto is_read = [&](int64_t open) {
      return std::ranges::any_of(lane.passes, [&](const auto& at) { return at.second == open; });
    };
    std::erase_if(lane.open, [&](const Open& open) { return !is_read(open.pass); });
    share_cache(lane);
  }
  const auto found = std::ranges::find(lane.open, pass, &Open::pass);
  if (found != lane.open.end()) {
    lane.open.splice(lane.open.begin(), lane.open, found);
  } else {
    lane.open.push_front({pass, open(number, (*dealt(pass))[static_cast<size_t>(number)])});
    if (lane.open.size() > kMostPassesOpen) lane.open.pop_back();
    share_cache(lane);
  }
  return lane.open.front().source;
}

void Lanes::share_cache(const Lane& lane) const {
  const auto read = static_cast<size_t>(lanes_of_rank(options_.source.reading.ownership, count()));
  for (const Open& open : lane.open)
    open.source->set_cache_bytes(options_.source.cache_bytes / (read * lane.open.size()));
}

std::shared_ptr<const Lanes::Dealt> Lanes::dealt(int64_t pass) {
  for (const auto& [known, dealt] : dealt_) {
    if (known == pass) return dealt;
  }
  dealt_.emplace_front(
      pass, std::make_shared<Dealt>(deal_blocks(striped_.blocks, count(), key_of_pass(options_.shuffle_key, pass))));
  if (dealt_.size() > kMostPassesOpen) dealt_.pop_back();
  return dealt_.front().second;
}

std::shared_ptr<RecordSource> Lanes::open(int64_t lane, const std::vector<int64_t>& blocks) const {
  std::vector<SourceFile> files;
  files.reserve(blocks.size());
  for (const int64_t number : blocks) {
    const FileBlock& block = striped_.blocks[static_cast<size_t>(number)];
    files.push_back(files_[static_cast<size_t>(block.file)]);
    files.back().part = block.part;
  }
  return std::make_shared<RecordSource>(std::move(files), options_of_lane(options_, lane, count()));
}

ReadingPlan Lanes::plan() const {
  ReadingPlan plan{.striping = striping(), .blocks = std::ssize(striped_.blocks)};
  const int64_t classes = std::gcd(count(), options_.source.reading.ownership.ranks);
  std::vector<int64_t> read(static_cast<size_t>(classes));
  const Dealt dealt = deal_blocks(striped_.blocks, count(), key_of_pass(options_.shuffle_key, 0));
  for (size_t lane = 0; lane < dealt.size(); ++lane) {
    for (const int64_t block : dealt[lane])
      read[lane % read.size()] += striped_.blocks[static_cast<size_t>(block)].part.bytes;
  }
  plan.bytes = std::accumulate(read.begin(), read.end(), int64_t{0});
  plan.least_bytes = *std::ranges::min_element(read);
  plan.most_bytes = *std::ranges::max_element(read);
  return plan;
}

}  // namespace titanium::data
