#include "titanium/data/striping.h"

#include <algorithm>
#include <future>
#include <limits>
#include <queue>

#include "titanium/base/error.h"
#include "titanium/base/text/thousands.h"
#include "titanium/data/record_order.h"
#include "titanium/remote/transport/lost_time.h"

namespace titanium::data {
namespace {

constexpr int64_t kBlocksOfALane = 64;            // that files are cut into; fewer of small data
constexpr int64_t kFewestBlocks = 4;              // of the largest size, in a lane
constexpr int64_t kRecordsOfAStream = 16;         // at least, about, unless blocks are asked for
constexpr int64_t kMostOpened = 1024;             // files, to find their parts
constexpr size_t kOpenedAtOnce = 16;              // likewise
constexpr int64_t kLaneBytes = int64_t{8} << 20;  // at least, unless blocks are asked for
constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr int64_t kSmallBlockBytes = int64_t{64} << 10;  // where blocks are asked for

FileBlock whole_file(const std::vector<SourceFile>& files, int64_t file) {
  return {.file = file, .part = {.bytes = files[static_cast<size_t>(file)].size}};
}

std::vector<FileBlock> blocks_of(const std::vector<SourceFile>& files, int64_t file, int64_t block_bytes,
                                 const ReadOptions& reading) {
  const SourceFile& source = files[static_cast<size_t>(file)];
  const auto parts = source.format->parts(source, block_bytes, reading);
  if (!parts) return {whole_file(files, file)};
  std::vector<FileBlock> blocks;
  for (const FilePart& part : *parts) blocks.push_back({.file = file, .part = part});
  return blocks;
}

int64_t most_lanes(const std::vector<FileBlock>& blocks, const StripingLimits& limits, int64_t limit) {
  int64_t bytes = 0, largest = 1;
  for (const FileBlock& block : blocks) {
    bytes += block.part.bytes;
    largest = std::max(largest, block.part.bytes);
  }
  limit = std::min(limit, bytes / largest / kFewestBlocks);
  if (limits.choice == StripingChoice::kAuto) limit = std::min(limit, bytes / kLaneBytes);
  return largest_divisor_up_to(limits.streams, limit);
}

// For blocks that say how many records they have. With a shuffle every lane needs as many as the average: later passes
// deal the blocks anew, and a window that is not full has empty places.
bool lanes_have_records(const StripedFiles& striped, int64_t streams, std::optional<uint64_t> key) {
  int64_t all = 0, fewest = std::numeric_limits<int64_t>::max();
  for (const auto& lane : deal_blocks(striped.blocks, striped.striping.lanes, key_of_pass(key, 0))) {
    int64_t records = 0;
    for (const int64_t block : lane) records += striped.blocks[static_cast<size_t>(block)].part.records;
    all += records;
    fewest = std::min(fewest, records);
  }
  const int64_t of_a_stream = key ? kRecordsOfAStream : 1;
  return all >= kRecordsOfAStream * streams && fewest >= of_a_stream * (streams / striped.striping.lanes);
}

bool is_small_part(const std::vector<FileBlock>& blocks, const Anchor& place) {
  int64_t before = 0, all = 0;
  for (const FileBlock& block : blocks) {
    all += block.part.bytes;
    if (std::tie(block.file, block.part.begin) <= std::tie(place.file, place.offset)) before += block.part.bytes;
  }
  return before <= all / kRecordsOfAStream;
}

bool is_opened_for_parts(const SourceFile& file) {
  return file.compression == Compression::kNone && file.format->opens_for_parts();
}

}  // namespace

int64_t largest_divisor_up_to(int64_t number, int64_t limit) {
  int64_t divisor = std::clamp<int64_t>(limit, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

std::string name_of(const Striping& striping) {
  if (!striping.by_blocks()) return "by records";
  if (striping.block_bytes == 0) return fmt::format("by files in {} lanes", striping.lanes);
  return fmt::format("by blocks of {} bytes in {} lanes", with_thousands_separators(striping.block_bytes),
                     striping.lanes);
}

StripingChoice striping_choice(std::string_view option) {
  if (option == "blocks") return StripingChoice::kBlocks;
  return option == "records" ? StripingChoice::kRecords : StripingChoice::kAuto;
}

std::vector<FileBlock> find_blocks(const std::vector<SourceFile>& files, int64_t block_bytes,
                                   const ReadOptions& reading) {
  std::vector<FileBlock> blocks;
  std::deque<std::future<std::vector<FileBlock>>> opened;  // in the order of the files
  const auto take = [&] {
    for (const FileBlock& block : opened.front().get()) blocks.push_back(block);
    opened.pop_front();
  };
  for (int64_t file = 0; file < std::ssize(files); ++file) {
    const bool opens = block_bytes > 0 && is_opened_for_parts(files[static_cast<size_t>(file)]);
    if (opened.size() == kOpenedAtOnce) take();
    const auto blocks_of_file = [&, file] {
      return block_bytes > 0 ? blocks_of(files, file, block_bytes, reading) : std::vector{whole_file(files, file)};
    };
    opened.push_back(opens ? remote::in_background(blocks_of_file) : std::async(std::launch::deferred, blocks_of_file));
  }
  while (!opened.empty()) take();
  return blocks;
}

bool has_many_records(const StripedFiles& striped, int64_t streams, std::optional<uint64_t> key, const Anchor& place) {
  const bool counted = std::ranges::all_of(striped.blocks, [](const auto& block) { return block.part.records >= 0; });
  return counted ? lanes_have_records(striped, streams, key) : is_small_part(striped.blocks, place);
}

StripedFiles choose_striping(const std::vector<SourceFile>& files, const StripingLimits& limits,
                             const ReadOptions& reading) {
  if (limits.choice == StripingChoice::kRecords) return {};
  int64_t bytes = 0, largest = 0, weight = 1, opened = 0;
  for (const SourceFile& file : files) {
    bytes += file.size;
    largest = std::max(largest, file.size);
    weight = std::max(weight, file.format->reader_weight(file));
    opened += is_opened_for_parts(file) ? 1 : 0;
  }
  const int64_t limit = largest_divisor_up_to(limits.streams, limits.lanes / weight);
  StripedFiles whole{.blocks = find_blocks(files, 0, reading)};
  whole.striping.lanes = most_lanes(whole.blocks, limits, limit);
  const int64_t least = limits.choice == StripingChoice::kAuto ? kBlockBytes : kSmallBlockBytes;
  const int64_t size = limits.block_bytes > 0 ? limits.block_bytes : std::max(least, bytes / (limit * kBlocksOfALane));
  const bool too_little = limits.choice == StripingChoice::kAuto && bytes < 2 * kLaneBytes;
  if (whole.striping.lanes == limit || too_little || largest <= size || opened > kMostOpened) return whole;
  StripedFiles cut{.striping = {.block_bytes = size}, .blocks = find_blocks(files, size, reading)};
  cut.striping.lanes = most_lanes(cut.blocks, limits, limit);
  return cut.striping.lanes > whole.striping.lanes ? cut : whole;
}

std::vector<std::vector<int64_t>> deal_blocks(const std::vector<FileBlock>& blocks, int64_t lanes,
                                              std::optional<uint64_t> key) {
  using Load = std::pair<int64_t, int64_t>;  // bytes and number of a lane
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int64_t lane = 0; lane < lanes; ++lane) loads.emplace(0, lane);
  std::vector<std::vector<int64_t>> dealt(static_cast<size_t>(lanes));
  const int64_t count = std::ssize(blocks);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t block = key ? permuted(i, count, *key) : i;
    const auto [bytes, lane] = loads.top();
    loads.pop();
    loads.emplace(bytes + std::max<int64_t>(blocks[static_cast<size_t>(block)].part.bytes, 1), lane);
    dealt[static_cast<size_t>(lane)].push_back(block);
  }
  return dealt;
}

std::optional<uint64_t> key_of_pass(std::optional<uint64_t> key, int64_t pass) {
  if (!key) return std::nullopt;
  return *key ^ mixed_bits(static_cast<uint64_t>(pass) + 0xB10C);
}

std::string describe(const ReadingPlan& plan, int64_t ranks) {
  const auto number = [](int64_t value) { return with_thousands_separators(value); };
  const std::string all = number(plan.bytes), least = number(plan.least_bytes), most = number(plan.most_bytes);
  std::string read = least == most ? least : least + " to " + most;
  read = plan.least_bytes == plan.bytes ? "all " + all : fmt::format("{} of {}", read, all);
  return fmt::format("dealt {}{}, {} reads {} bytes in an epoch", name_of(plan.striping),
                     plan.striping.by_blocks() ? fmt::format(" ({} blocks)", number(plan.blocks)) : "",
                     ranks == 1 ? "the only rank" : fmt::format("each of {} ranks", ranks), read);
}

}  // namespace titanium::data
