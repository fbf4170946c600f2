#include "titanium/parallel/matrix_owners.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "titanium/base/error.h"
#include "titanium/optim/matrix_exchange.h"
#include "titanium/optim/newton_schulz.h"

namespace titanium::parallel {
namespace {

// A matrix, and what each rank of the stage stores of it.
struct Spread {
  OwnedMatrix matrix;
  double work = 0;
  std::vector<std::optional<Box>> held;  // by place in the stage

  bool is_whole_on(size_t place) const { return held[place] == matrix.box; }
  std::vector<int> holders(const Box& box) const {
    std::vector<int> places;
    for (size_t place = 0; place < held.size(); ++place) {
      if (held[place] == box) places.push_back(static_cast<int>(place));
    }
    return places;
  }
};

std::vector<Spread> spread_matrices(const std::vector<Parameter*>& parameters, const ParallelDims& dims,
                                    const std::vector<int>& members) {
  std::vector<Spread> spreads;
  for (Parameter* parameter : parameters) {
    std::vector<Box> shards;
    for (const int member : members) shards.push_back(shard_on_rank(*parameter, dims, member));
    for (const Box& box : optim::matrices_of(*parameter)) {
      Spread spread{.matrix = {parameter, box, 0},
                    .work = optim::newton_schulz_work(optim::matrix_rows(box), optim::matrix_columns(box)),
                    .held = {}};
      for (const Box& shard : shards) spread.held.push_back(intersection(shard, box));
      spreads.push_back(std::move(spread));
    }
  }
  return spreads;
}

// The largest matrices first, each to the rank that has least to do.
std::vector<double> choose_owners(std::vector<Spread>& spreads, size_t ranks) {
  std::ranges::stable_sort(spreads, std::greater(), &Spread::work);
  std::vector<double> load(ranks, 0);
  for (Spread& spread : spreads) {
    std::vector<size_t> candidates;
    for (size_t place = 0; place < ranks; ++place) {
      if (spread.is_whole_on(place)) candidates.push_back(place);
    }
    if (candidates.empty()) {
      candidates.resize(ranks);
      std::iota(candidates.begin(), candidates.end(), size_t{0});
    }
    const size_t owner = *std::ranges::min_element(candidates, {}, [&](size_t place) { return load[place]; });
    load[owner] += spread.work;
    spread.matrix.owner = static_cast<int>(owner);
  }
  return load;
}

// Which of the ranks that hold the box sends it to the owner.
int sender_of(const Spread& spread, const Box& box) {
  const int owner = spread.matrix.owner;
  const std::vector<int> holders = spread.holders(box);
  if (std::ranges::find(holders, owner) != holders.end()) return owner;
  const auto& own = spread.held[static_cast<size_t>(owner)];
  const std::vector<int> copies = own ? spread.holders(*own) : std::vector<int>();
  const auto place = std::ranges::find(copies, owner) - copies.begin();
  return holders[static_cast<size_t>(own ? place : owner) % holders.size()];
}

MatrixRound::Part part_of(const Spread& spread, int me) {
  MatrixRound::Part part{.matrix = spread.matrix, .inputs = {}, .results = {}};
  const int owner = spread.matrix.owner;
  for (size_t place = 0; place < spread.held.size(); ++place) {
    if (!spread.held[place]) continue;
    const Box& box = *spread.held[place];
    const int holder = static_cast<int>(place);
    if (me != owner && me != holder) continue;
    const int peer = me == owner ? holder : owner;
    part.results.push_back({box, peer});
    if (sender_of(spread, box) == holder) part.inputs.push_back({box, peer});
  }
  return part;
}

int64_t copies_of(const Spread& spread) {
  int64_t held = 0;
  for (const auto& box : spread.held) held += box ? volume(box->shape) : 0;
  return held / volume(spread.matrix.box.shape);
}

}  // namespace

Box shard_on_rank(const Parameter& parameter, const ParallelDims& dims, int rank) {
  Box box{Shape(parameter.global_shape.size(), 0), parameter.global_shape};
  for (const Placement& placement : parameter.placements) {
    const int64_t ranks = axis_size(dims, placement.axis), place = axis_rank(dims, placement.axis, rank);
    const auto dim = static_cast<size_t>(placement.dim);
    const int64_t size = box.shape[dim], each = (size + ranks - 1) / ranks;
    const int64_t first = std::min(size, place * each);
    box.offset[dim] += first;
    box.shape[dim] = std::min(each, size - first);
  }
  return box;
}

std::vector<int> stage_members(const ParallelDims& dims, int rank) {
  std::vector<int> members;
  const int64_t stage = axis_rank(dims, "pp", rank);
  for (int member = 0; member < dims.world(); ++member) {
    if (axis_rank(dims, "pp", member) == stage) members.push_back(member);
  }
  return members;
}

MatrixPlan plan_matrices(const std::vector<Parameter*>& parameters, const ParallelDims& dims, int rank) {
  const std::vector<int> members = stage_members(dims, rank);
  const auto me = static_cast<int>(std::ranges::find(members, rank) - members.begin());
  std::vector<Spread> spreads = spread_matrices(parameters, dims, members);
  MatrixPlan plan;
  plan.work = choose_owners(spreads, members.size());
  std::vector<size_t> taken(members.size(), 0);  // matrices of each owner so far
  std::ranges::stable_sort(spreads, {}, [](const Spread& spread) { return spread.matrix.owner; });
  for (const Spread& spread : spreads) {
    const size_t number = taken[static_cast<size_t>(spread.matrix.owner)]++;
    if (plan.rounds.size() <= number) plan.rounds.resize(number + 1);
    MatrixRound& round = plan.rounds[number];
    MatrixRound::Part part = part_of(spread, me);
    round.gathers |= !spread.is_whole_on(static_cast<size_t>(spread.matrix.owner));
    round.scatters |= std::ranges::count_if(spread.held, [](const auto& box) { return box.has_value(); }) > 1;
    if (!part.inputs.empty() || !part.results.empty()) round.parts.push_back(std::move(part));
    plan.waves = std::max(plan.waves, copies_of(spread));
    plan.largest = std::max(plan.largest, volume(spread.matrix.box.shape));
  }
  return plan;
}

}  // namespace titanium::parallel
