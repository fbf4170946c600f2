#include "titanium/parallel/data_parallel/sharded_unit.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "tests/support/threaded_ranks.h"
#include "titanium/parallel/placement.h"

namespace titanium::parallel {
namespace {

TEST(Shards, CoverEveryRowOnceAndMayBeEmpty) {
  constexpr int64_t kRanks = 4;
  for (const int64_t rows : {1, 3, 4, 5, 9, 64}) {
    int64_t next = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      Parameter parameter("a", {rows, 3});
      shard(parameter, {.dp_shard = kRanks}, rank);
      EXPECT_EQ(parameter.shard.offset[0], next);
      next += parameter.shard.shape[0];
    }
    EXPECT_EQ(next, rows);
  }
}

TEST(Shards, AShardLiesInsideItsPart) {
  Parameter parameter("a", {16, 4});
  parameter.part = parameter.shard = {{8, 0}, {8, 4}};
  shard(parameter, {.dp_shard = 2}, 1);
  EXPECT_EQ(parameter.shard, (Box{{12, 0}, {4, 4}}));
  EXPECT_EQ(parameter.part, (Box{{8, 0}, {8, 4}}));
}

// Gathers and reduces parameters of uneven sizes on `ranks` threads.
void gather_and_reduce(comm::World& world) {
  const int rank = world.rank(), ranks = world.size();
  const Mesh mesh(world, {.dp_shard = ranks});
  Parameter a("a", {5, 3}), b("b", {1}), c("c", {8, 2});
  for (Parameter* parameter : {&a, &b, &c}) {
    shard(*parameter, {.dp_shard = ranks}, rank);
    parameter->materialize(at::kFloat, at::kCPU);
    parameter->gather_around_use(at::kFloat);
    const Tensor whole = at::arange(volume(parameter->global_shape), at::kFloat).view(parameter->global_shape);
    parameter->value.detach().copy_(box_of(whole, parameter->shard));
  }
  ShardContext context(at::kCPU, at::kFloat);
  const nn::Unit described("unit", nn::UnitRole::kBlock, {&a, &b, &c});
  ShardedUnit unit(described, data_parallel_groups(described, mesh), context);
  unit.start_gather();
  unit.finish_gather();
  for (Parameter* parameter : {&a, &b, &c}) {
    const Tensor whole = at::arange(volume(parameter->global_shape), at::kFloat).view(parameter->global_shape);
    EXPECT_TRUE(at::equal(parameter->in(at::kFloat), whole)) << parameter->fqn;
    parameter->accumulate(whole * (rank + 1));
  }
  unit.release();
  EXPECT_THROW(a.in(at::kFloat), std::logic_error);
  unit.start_reduce();
  while (unit.is_reducing()) unit.advance_reduce();
  const double sum = ranks * (ranks + 1) / 2.0;
  for (Parameter* parameter : {&a, &b, &c}) {
    const Tensor whole = at::arange(volume(parameter->global_shape), at::kFloat).view(parameter->global_shape);
    EXPECT_TRUE(at::equal(parameter->grad, box_of(whole * sum, parameter->shard))) << parameter->fqn;
  }
  unit.groups().shard->barrier();
}

TEST(ShardedUnit, GathersAndReducesWhatDoesNotDivide) {
  for (const int ranks : {1, 2, 3, 4}) test::run_ranks(ranks, gather_and_reduce);
}

TEST(BufferPool, ReusesWhatFitsClosely) {
  BufferPool pool(at::kCPU);
  const Tensor large = pool.take(1000, at::kFloat);
  const void* memory = large.data_ptr();
  pool.give_back(large);
  const Tensor somewhat_smaller = pool.take(900, at::kFloat);
  EXPECT_EQ(somewhat_smaller.data_ptr(), memory);
  EXPECT_EQ(somewhat_smaller.numel(), 900);
  pool.give_back(somewhat_smaller);
  pool.take(500, at::kFloat);
  pool.take(1000, at::kBFloat16);
  EXPECT_EQ(pool.bytes(), 4000 + 2000 + 2000);
}

}  // namespace
}  // namespace titanium::parallel
