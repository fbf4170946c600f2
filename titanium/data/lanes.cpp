#include "titanium/data/lanes.h"

#include <algorithm>
#include <numeric>

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

constexpr size_t kPassesOpen = 2;

// Which records of a lane belong to a rank: those that streams of the rank read.
Ownership share_of(const Ownership& rank, int64_t lane, int64_t lanes) {
  const int64_t sharers = rank.ranks / std::gcd(lanes, rank.ranks);
  int64_t first = 0;
  while (first < sharers && (lane + lanes * first) % rank.ranks != rank.rank) ++first;
  TI_ASSERT(first < sharers, "rank {} of {} reads nothing of lane {}", rank.rank, rank.ranks, lane);
  return {.rank = first, .ranks = sharers};
}

// The options of one lane: memory and readers are shared by the lanes that a rank reads from.
RecordSourceOptions options_of_lane(const LanesOptions& options, int64_t lane, int64_t lanes) {
  RecordSourceOptions source = options.source;
  const Ownership& rank = options.source.reading.ownership;
  const int64_t read = lanes / std::gcd(lanes, rank.ranks);
  const int64_t passes = options.shuffle_key ? kPassesOpen : 1;
  const int64_t memory = static_cast<int64_t>(source.cache_bytes) / (read * passes);
  const Ownership share = share_of(rank, lane, lanes);
  const int64_t streams = std::max<int64_t>(options.streams / lanes / share.ranks, 1);
  source.reading.ownership = options.shuffle_key ? Ownership{} : share;  // a shuffle moves records between streams
  source.cache_bytes = static_cast<size_t>(memory);
  source.max_readers = std::clamp<size_t>(8 * source.max_readers / static_cast<size_t>(read), 1, source.max_readers);
  source.reading.memory_bytes = std::max<int64_t>(memory, 1);
  source.reading.block_bytes =
      std::clamp<int64_t>(memory / (4 * streams), int64_t{64} << 10, ReadOptions{}.block_bytes);
  source.forgets_places = true;
  return source;
}

}  // namespace

Lanes::Lanes(const std::vector<SourceFile>& files, StripedFiles striped, LanesOptions options)
    : files_(files), striped_(std::move(striped)), options_(std::move(options)) {}

std::shared_ptr<RecordSource> Lanes::lane(int64_t lane, int64_t pass) {
  if (!options_.shuffle_key) pass = 0;
  const std::lock_guard lock(mutex_);
  std::list<Open>& passes = open_[lane];
  const auto found = std::ranges::find(passes, pass, &Open::pass);
  if (found != passes.end()) {
    passes.splice(passes.begin(), passes, found);
  } else {
    passes.push_front({pass, open(lane, (*dealt(pass))[static_cast<size_t>(lane)])});
    if (passes.size() > kPassesOpen) passes.pop_back();
  }
  return passes.front().source;
}

std::shared_ptr<const Lanes::Dealt> Lanes::dealt(int64_t pass) {
  for (const auto& [known, dealt] : dealt_) {
    if (known == pass) return dealt;
  }
  dealt_.emplace_front(
      pass, std::make_shared<Dealt>(deal_blocks(striped_.blocks, count(), key_of_pass(options_.shuffle_key, pass))));
  if (dealt_.size() > kPassesOpen) dealt_.pop_back();
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
