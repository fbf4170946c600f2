#include "titanium/parallel/matrix_owners.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "tests/support/recording_world.h"
#include "tests/support/tensors.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/parallel/data_parallel/sharded_unit.h"
#include "titanium/parallel/owner_exchange.h"
#include "titanium/parallel/placement.h"
#include "titanium/parallel/tensor_parallel.h"

namespace titanium::parallel {
namespace {

constexpr TensorParallelRule kColumn{"layers.*.{wq,wk,w1}", TensorParallelStyle::kByColumn};
constexpr TensorParallelRule kRow{"layers.*.{wo,w2}", TensorParallelStyle::kByRow};
constexpr TensorParallelRule kExpertsColumn{"layers.*.experts.w1", TensorParallelStyle::kByColumn};
constexpr TensorParallelRule kExpertsRow{"layers.*.experts.w2", TensorParallelStyle::kByRow};
constexpr int64_t kExperts = 8, kHidden = 12;  // of each layer, and of each expert

using Parameters = std::vector<std::unique_ptr<Parameter>>;

std::vector<Parameter*> pointers(const Parameters& owned) {
  std::vector<Parameter*> result;
  for (const auto& parameter : owned) result.push_back(parameter.get());
  return result;
}

// Weights of blocks as rank `rank` has them.
Parameters blocks(const ParallelDims& dims, int rank, int64_t layers, int64_t dim, bool sharded) {
  Parameters parameters;
  const std::vector<std::pair<std::string, Shape>> shapes = {
      {"wq", {dim, dim}}, {"wk", {dim / 2, dim}}, {"wo", {dim, dim}}, {"w1", {3 * dim, dim}}, {"w2", {dim, 3 * dim}}};
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const auto& [name, shape] : shapes) {
      parameters.push_back(std::make_unique<Parameter>(fmt::format("layers.{}.{}.weight", layer, name), shape));
    }
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const auto& [name, shape] :
         {std::pair{"w1", Shape{kExperts, kHidden, dim}}, {"w2", Shape{kExperts, dim, kHidden}}}) {
      parameters.push_back(std::make_unique<Parameter>(fmt::format("layers.{}.experts.{}", layer, name), shape));
      parameters.back()->view = RankView::kSparse;
    }
  }
  cut_parameters(pointers(parameters), {kColumn, kRow, kExpertsColumn, kExpertsRow}, dims, rank);
  for (const auto& parameter : parameters) {
    if (!sharded) continue;
    choose_shard_dim(*parameter, dims);
    shard(*parameter, dims, rank);
  }
  return parameters;
}

struct Case {
  const char* name;
  ParallelDims dims;
  bool sharded;
};

const std::vector<Case> kCases = {
    {"one", {}, false},
    {"fsdp4", {.dp_shard = 4}, true},
    {"fsdp3", {.dp_shard = 3}, true},
    {"ddp3", {.dp_replicate = 3}, false},
    {"hsdp2x2", {.dp_replicate = 2, .dp_shard = 2}, true},
    {"tp2", {.tp = 2}, false},
    {"fsdp2_tp2", {.dp_shard = 2, .tp = 2}, true},
    {"hsdp2x2_tp2_cp2", {.dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2}, true},
    {"pp2_fsdp2", {.pp = 2, .dp_shard = 2}, true},
    {"ep2", {.dp_shard = 2, .ep = 2}, true},
    {"fsdp2_ep4", {.dp_shard = 8, .ep = 4}, true},
    {"fsdp6_ep2", {.dp_shard = 12, .ep = 2}, true},  // rows of experts are cut
    {"fsdp5_ep2", {.dp_shard = 10, .ep = 2}, true},  // some ranks have no expert of a weight
    {"hsdp2_ep2", {.dp_replicate = 2, .dp_shard = 2, .ep = 2}, true},
    {"tp4_ep2", {.tp = 4, .ep = 2}, true},
    {"tp2_ep2_etp2", {.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}, true},
    {"pp2_hsdp2_tp2_ep2_etp2", {.pp = 2, .dp_replicate = 2, .dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}, true}};

TEST(MatrixOwners, EveryRankKnowsWhatOthersStore) {
  for (const auto& [name, dims, sharded] : kCases) {
    const Parameters mine = blocks(dims, 0, 1, 40, sharded);
    for (int rank = 0; rank < dims.world(); ++rank) {
      const Parameters theirs = blocks(dims, rank, 1, 40, sharded);
      for (size_t i = 0; i < mine.size(); ++i) {
        const Box& expected = sharded ? theirs[i]->shard : theirs[i]->part;
        EXPECT_EQ(shard_on_rank(*mine[i], dims, rank), expected) << name << " " << rank << " " << mine[i]->fqn;
      }
    }
  }
}

TEST(MatrixOwners, EachMatrixHasOneOwnerWhoGetsEveryElementOnce) {
  for (const auto& [name, dims, sharded] : kCases) {
    SCOPED_TRACE(name);
    std::map<std::string, Tensor> arrived, returned;
    std::map<std::string, std::set<int>> owners;
    const std::vector<int> members = stage_members(dims, 0);
    for (const int rank : members) {
      const Parameters parameters = blocks(dims, rank, 2, 40, sharded);
      const auto place = static_cast<int>(std::ranges::find(members, rank) - members.begin());
      for (const MatrixRound& round : plan_matrices(pointers(parameters), dims, rank).rounds) {
        for (const MatrixRound::Part& part : round.parts) {
          const Parameter& parameter = *part.matrix.parameter;
          owners[fmt::format("{} {}", parameter.fqn, part.matrix.box.offset.front())].insert(part.matrix.owner);
          if (part.matrix.owner != place) continue;
          Tensor& inputs = arrived.try_emplace(parameter.fqn, at::zeros(parameter.global_shape)).first->second;
          Tensor& results = returned.try_emplace(parameter.fqn, at::zeros(parameter.global_shape)).first->second;
          for (const MatrixPiece& piece : part.inputs) box_of(inputs, piece.box).add_(1);
          for (const MatrixPiece& piece : part.results) box_of(results, piece.box).add_(1);
        }
      }
    }
    EXPECT_EQ(owners.size(), 2 * (5 + 2 * kExperts));
    for (const auto& [matrix, places] : owners) EXPECT_EQ(places.size(), 1) << matrix;
    EXPECT_EQ(arrived.size(), 2 * (5 + 2));
    for (const auto& [fqn, counts] : arrived) {
      EXPECT_TRUE((counts == 1).all().item<bool>()) << fqn;
      EXPECT_TRUE((returned.at(fqn) == dims.dp_replicate).all().item<bool>()) << fqn;
    }
  }
}

TEST(MatrixOwners, OwnersHaveAboutTheSameWork) {
  for (const ParallelDims& dims : {ParallelDims{.dp_shard = 8}, ParallelDims{.dp_replicate = 8},
                                   ParallelDims{.dp_replicate = 2, .dp_shard = 2, .tp = 2}}) {
    const Parameters parameters = blocks(dims, 0, /*layers=*/32, /*dim=*/64, /*sharded=*/dims.dp_shard > 1);
    const MatrixPlan plan = plan_matrices(pointers(parameters), dims, 0);
    const double mean = std::accumulate(plan.work.begin(), plan.work.end(), 0.0) / 8;
    EXPECT_LE(*std::ranges::max_element(plan.work), 1.05 * mean);
  }
}

TEST(MatrixOwners, ALargeMatrixWeighsAsMuchAsManySmallOnes) {
  const ParallelDims dims{.dp_replicate = 2};
  Parameters parameters;
  parameters.push_back(std::make_unique<Parameter>("large", Shape{64, 64}));
  for (int i = 0; i < 7; ++i)
    parameters.push_back(std::make_unique<Parameter>(fmt::format("small.{}", i), Shape{32, 32}));
  const MatrixPlan plan = plan_matrices(pointers(parameters), dims, 0);
  ASSERT_EQ(plan.work.size(), 2U);
  EXPECT_EQ(plan.work[1], plan.work[0] * 7 / 8);
}

// What a rank sends and receives at a time, in matrices.
TEST(MatrixOwners, NoRankMovesMuchMoreThanAMatrixAtATime) {
  for (const auto& [name, dims, sharded] : kCases) {
    for (int rank = 0; rank < dims.world(); ++rank) {
      const std::vector<int> members = stage_members(dims, rank);
      const auto place = static_cast<int>(std::ranges::find(members, rank) - members.begin());
      const Parameters parameters = blocks(dims, rank, 4, 48, sharded);
      const MatrixPlan plan = plan_matrices(pointers(parameters), dims, rank);
      for (const MatrixRound& round : plan.rounds) {
        int64_t gathered = 0, sent = 0, given = 0, taken = 0;
        for (const MatrixRound::Part& part : round.parts) {
          const bool owns = part.matrix.owner == place;
          for (const MatrixPiece& piece : part.inputs) (owns ? gathered : sent) += volume(piece.box.shape);
          for (const MatrixPiece& piece : part.results) (owns ? given : taken) += volume(piece.box.shape);
        }
        EXPECT_LE(gathered, plan.largest) << name;
        EXPECT_LE(sent, plan.largest) << name;
        EXPECT_LE(given, plan.waves * plan.largest) << name;
        EXPECT_LE(taken, plan.waves * plan.largest) << name;
      }
      EXPECT_EQ(plan.waves, dims.dp_replicate) << name;
    }
  }
}

TEST(MatrixOwners, ARankThatStoresAMatrixOwnsIt) {
  const ParallelDims dims{.dp_shard = 4};
  Parameter experts("experts", {8, 6, 5});
  shard(experts, dims, /*rank=*/1);
  const MatrixPlan plan = plan_matrices({&experts}, dims, 1);
  ASSERT_EQ(plan.rounds.size(), 2);
  for (const MatrixRound& round : plan.rounds) {
    EXPECT_FALSE(round.gathers || round.scatters);
    ASSERT_EQ(round.parts.size(), 1);
    EXPECT_EQ(round.parts[0].matrix.owner, 1);
  }
  EXPECT_EQ(plan.rounds[1].parts[0].matrix.box.offset[0], 3);
}

// The owner sees the whole matrix, and everybody gets a part of what it made of it.
TEST(OwnerExchange, ComputesWithWholeMatrices) {
  for (const auto& [name, dims, sharded] : kCases) {
    SCOPED_TRACE(name);
    std::mutex mutex;
    std::map<std::string, int> computed;
    test::run_ranks(static_cast<int>(dims.world()), [&](comm::World& world) {
      const Parameters parameters = blocks(dims, world.rank(), 2, 40, sharded);
      OwnerExchange exchange(pointers(parameters), dims, world.rank());
      exchange.connect(world, at::kCPU);
      const auto whole = [](const Parameter& p) { return at::arange(volume(p.global_shape)).view(p.global_shape); };
      const auto rows = [](const Parameter& p) { return p.global_shape[p.global_shape.size() - 2]; };
      std::map<const Parameter*, Tensor> results;
      for (const auto& p : parameters) results[p.get()] = at::zeros(sharded ? p->shard.shape : p->part.shape);
      const auto write = [&](const Parameter& p, const Box& box, const Tensor& piece) {
        Box inside = box;
        const Box& stored = sharded ? p.shard : p.part;
        for (size_t dim = 0; dim < box.offset.size(); ++dim) inside.offset[dim] -= stored.offset[dim];
        box_of(results.at(&p), inside).add_(piece);
      };
      const auto compute = [&](const Tensor& matrix) {
        const std::lock_guard lock(mutex);
        ++computed[fmt::format("{} {} {}", axis_rank(dims, "pp", world.rank()), matrix.size(0), matrix.size(1))];
        return matrix * 2 + matrix.size(0);
      };
      const auto read = [&](const Parameter& p, const Box& box) { return box_of(whole(p), box).to(at::kFloat); };
      exchange.run(pointers(parameters), {.dtype = at::kFloat, .read = read, .compute = compute, .write = write});
      for (const auto& p : parameters) {
        const Tensor expected = whole(*p) * 2 + rows(*p);
        EXPECT_TRUE(results.at(p.get()).equal(box_of(expected, sharded ? p->shard : p->part).to(at::kFloat))) << p->fqn;
      }
    });
    for (int64_t stage = 0; stage < dims.pp; ++stage) {
      EXPECT_EQ(computed.at(fmt::format("{} 40 40", stage)), 4);  // wq and wo of two layers
      EXPECT_EQ(computed.at(fmt::format("{} 120 40", stage)), 2);
      EXPECT_EQ(computed.at(fmt::format("{} 12 40", stage)), 2 * kExperts);
    }
  }
}

// At the end of each computation the pieces of the next round are on their way, and so are the last results.
TEST(OwnerExchange, MovesPiecesWhileOwnersCompute) {
  const ParallelDims dims{.dp_shard = 2};
  constexpr int64_t kRounds = 4;
  test::run_ranks(2, [&](comm::World& world) {
    Parameters parameters;
    for (int64_t i = 0; i < 2 * kRounds; ++i) {
      parameters.push_back(std::make_unique<Parameter>(fmt::format("layers.{}.wq.weight", i), Shape{8, 8}));
      shard(*parameters.back(), dims, world.rank());
    }
    test::CollectiveCounts counts;
    test::RecordingWorld recorded(world, counts);
    OwnerExchange exchange(pointers(parameters), dims, world.rank());
    exchange.connect(recorded, at::kCPU);
    int64_t round = 0;
    const auto compute = [&](const Tensor& matrix) {
      const int64_t inputs = std::min(round + 2, kRounds), results = round;
      EXPECT_EQ(counts.started, inputs + results) << "round " << round;
      const int64_t results_there = std::max<int64_t>(0, round - 1);
      EXPECT_EQ(counts.waited, round + 1 + results_there) << "round " << round;
      ++round;
      return matrix;
    };
    exchange.run(pointers(parameters), {.dtype = at::kFloat,
                                        .read = [](const auto&, const Box& box) { return at::zeros(box.shape); },
                                        .compute = compute,
                                        .write = [](const auto&, const Box&, const Tensor&) {}});
    EXPECT_EQ(round, kRounds);
    EXPECT_EQ(counts.started, 2 * kRounds);
    EXPECT_EQ(counts.waited, 2 * kRounds);
  });
}

}  // namespace
}  // namespace titanium::parallel
