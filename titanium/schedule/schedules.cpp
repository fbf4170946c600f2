#include "titanium/schedule/schedules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <climits>

#include "titanium/base/error.h"
#include "titanium/base/text/nearest_name.h"

namespace titanium::schedule {
namespace {

constexpr int kMany = INT_MAX;
constexpr int64_t kMaxActions = int64_t{1} << 24;

constexpr Schedule kSchedules[] = {
    {"1F1B", 1, 1, 1, Placement::kLoop, one_forward_one_backward},
    {"Interleaved1F1B", 2, kMany, 2, Placement::kLoop, interleaved_1f1b},
    {"GPipe", 1, 1, 1, Placement::kLoop, gpipe},
    {"LoopedBFS", 2, kMany, 2, Placement::kLoop, looped_bfs},
    {"InterleavedZeroBubble", 2, kMany, 2, Placement::kLoop, interleaved_zero_bubble},
    {"ZBVZeroBubble", 2, 2, 2, Placement::kV, zbv_zero_bubble},
    {"DualPipeV", 2, 2, 2, Placement::kV, dual_pipe_v},
    {"PipelineScheduleSingle", 1, 1, 1, Placement::kLoop, nullptr},
    {"PipelineScheduleMulti", 2, kMany, 2, Placement::kLoop, nullptr},
};

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

const Schedule& find_schedule(std::string_view name) {
  for (const Schedule& schedule : kSchedules) {
    if (same_name(schedule.name, name)) return schedule;
  }
  const auto nearest = nearest_name(name, schedule_names());
  throw UsageError(fmt::format("'{}' is not a pipeline schedule. {}Use one of {}.", name,
                               nearest ? fmt::format("Did you mean {}? ", *nearest) : "",
                               fmt::join(schedule_names(), ", ")));
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Schedule& schedule : kSchedules) names.emplace_back(schedule.name);
  return names;
}

void check_stages_per_rank(const Schedule& schedule, int64_t stages_per_rank) {
  if (stages_per_rank >= schedule.min_stages_per_rank && stages_per_rank <= schedule.max_stages_per_rank) return;
  const bool exact = schedule.min_stages_per_rank == schedule.max_stages_per_rank;
  throw UsageError(fmt::format("{} wants {} {} stage{} per rank, not {}.", schedule.name,
                               exact ? "exactly" : "at least", schedule.min_stages_per_rank,
                               schedule.min_stages_per_rank == 1 ? "" : "s", stages_per_rank));
}

Table build_table(const Schedule& schedule, const Shape& shape) {
  if (!schedule.build) throw UsageError(fmt::format("{} takes its table from a CSV file. Name one.", schedule.name));
  if (shape.ranks < 1 || shape.micro_batches < 1) {
    throw UsageError(fmt::format("A pipeline of {} ranks and {} micro-batches is none: both must be at least 1.",
                                 shape.ranks, shape.micro_batches));
  }
  check_stages_per_rank(schedule, shape.stages_per_rank);
  if (int64_t{shape.ranks} * shape.stages_per_rank > kMaxActions / shape.micro_batches) {
    throw UsageError(fmt::format("{} ranks x {} stages x {} micro-batches are more than the {} that a table may hold.",
                                 shape.ranks, shape.stages_per_rank, shape.micro_batches, kMaxActions));
  }
  return schedule.build(shape);
}

}  // namespace titanium::schedule
