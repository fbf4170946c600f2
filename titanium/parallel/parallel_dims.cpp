#include "titanium/parallel/parallel_dims.h"

#include <array>
#include <ranges>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

// The places that a view does not use are axes without a name and with one rank.
struct Axis {
  std::string_view name;
  int64_t size = 1;
};
using View = std::array<Axis, 5>;

// As Note [Three views of the ranks] has them. Without allocations: every step asks for the axes of every parameter.
std::array<View, 5> views(const ParallelDims& dims) {
  return {{
      {{{"world", dims.world()}}},
      {{{"pp", dims.pp}, {"batch", dims.batch()}, {"cp", dims.cp}, {"tp", dims.tp}}},
      {{{"pp", dims.pp}, {"loss", dims.loss()}, {"tp", dims.tp}}},
      {{{"pp", dims.pp}, {"dp_replicate", dims.dp_replicate}, {"fsdp", dims.fsdp()}, {"tp", dims.tp}}},
      {{{"pp", dims.pp},
        {"dp_replicate", dims.dp_replicate},
        {"efsdp", dims.efsdp()},
        {"ep", dims.ep},
        {"etp", dims.etp}}},
  }};
}

struct AxisInView {
  int64_t size;
  int64_t stride;  // between neighbours on the axis
};

AxisInView find_axis(const ParallelDims& dims, std::string_view name) {
  for (const View& view : views(dims)) {
    int64_t stride = 1;
    for (const auto& axis : std::views::reverse(view)) {
      if (axis.name == name) return {axis.size, stride};
      stride *= axis.size;
    }
  }
  TI_ASSERT(false, "there is no mesh axis {}", name);
  return {};
}

}  // namespace

ParallelDims parallel_dims(const config::Parallelism& degrees, int64_t world_size) {
  ParallelDims dims = {.pp = degrees.pipeline_parallel_degree,
                       .dp_replicate = degrees.data_parallel_replicate_degree,
                       .dp_shard = degrees.data_parallel_shard_degree,
                       .cp = degrees.context_parallel_degree,
                       .tp = degrees.tensor_parallel_degree,
                       .ep = degrees.expert_parallel_degree,
                       .etp = degrees.expert_tensor_parallel_degree};
  if (dims.dp_shard == -1) {
    dims.dp_shard = std::max<int64_t>(1, world_size / (dims.dp_replicate * dims.cp * dims.tp * dims.pp));
  }
  if (dims.world() != world_size) {
    throw UsageError(
        fmt::format("{} make {} ranks, but there are {}. Change the number of ranks or the degrees under "
                    "[parallelism].",
                    describe(dims), dims.world(), world_size));
  }
  return dims;
}

const std::vector<std::string>& axis_names() {
  static const std::vector<std::string> names = {"pp",           "batch", "cp",    "tp", "loss",
                                                 "dp_replicate", "fsdp",  "efsdp", "ep", "etp"};
  return names;
}

int64_t axis_size(const ParallelDims& dims, std::string_view axis) { return find_axis(dims, axis).size; }

std::vector<int> axis_members(const ParallelDims& dims, std::string_view axis, int rank) {
  const auto [size, stride] = find_axis(dims, axis);
  const int64_t first = rank - rank / stride % size * stride;
  std::vector<int> members;
  for (int64_t i = 0; i < size; ++i) members.push_back(static_cast<int>(first + i * stride));
  return members;
}

int64_t axis_rank(const ParallelDims& dims, std::string_view axis, int rank) {
  const auto [size, stride] = find_axis(dims, axis);
  return rank / stride % size;
}

std::string describe(const ParallelDims& dims) {
  return fmt::format("pp={}, dp_replicate={}, dp_shard={}, cp={}, tp={}, ep={}, etp={}", dims.pp, dims.dp_replicate,
                     dims.dp_shard, dims.cp, dims.tp, dims.ep, dims.etp);
}

std::string describe_active_axes(const ParallelDims& dims) {
  std::vector<std::string> active;
  for (const std::string& name : axis_names()) {
    if (name == "efsdp" && dims.ep == 1) continue;
    if (axis_size(dims, name) > 1) active.push_back(fmt::format("{} {}", name, axis_size(dims, name)));
  }
  return active.empty() ? "none" : fmt::format("{}", fmt::join(active, ", "));
}

}  // namespace titanium::parallel
