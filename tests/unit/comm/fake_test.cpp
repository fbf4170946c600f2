// One process that plays one rank of many.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <numeric>

#include "titanium/comm/world.h"

namespace titanium::comm {
namespace {

std::vector<int> ranks(int size) {
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(FakeGroup, TakesEveryOtherRankToHoldTheSame) {
  const auto world = make_fake_world(2, 3);
  const GroupPtr group = world->group("dp", ranks(3));
  EXPECT_EQ(group->rank(), 2);
  EXPECT_EQ(group->size(), 3);

  const Tensor whole = at::arange(6), gathered = at::zeros({18}, at::kLong), shard = at::zeros({2}, at::kLong);
  group->all_gather(gathered, whole)->wait();
  EXPECT_TRUE(at::equal(gathered, at::arange(18) % 6));
  group->reduce_scatter(shard, whole, Reduce::kSum)->wait();
  EXPECT_TRUE(at::equal(shard, 3 * whole.narrow(0, 4, 2)));
  group->reduce_scatter(shard, whole, Reduce::kAvg)->wait();
  EXPECT_TRUE(at::equal(shard, whole.narrow(0, 4, 2)));
  group->broadcast(whole, 1)->wait();
  group->all_reduce(whole, Reduce::kSum)->wait();
  EXPECT_TRUE(at::equal(whole, 3 * at::arange(6)));
  group->barrier();
}

TEST(FakeGroup, OfOneMemberIsExact) {
  const auto world = make_fake_world(5, 8);
  const GroupPtr group = world->group("tp", {5});
  const Tensor x = at::arange(6).to(at::kBFloat16), out = at::zeros({6}, at::kBFloat16);
  group->all_reduce(x, Reduce::kSum)->wait();
  group->all_gather(x, x)->wait();
  group->reduce_scatter(out, x, Reduce::kAvg)->wait();
  EXPECT_TRUE(at::equal(out, at::arange(6).to(at::kBFloat16)));
  const Tensor rows = at::arange(6).view({3, 2}), moved = at::zeros({3, 2}, at::kLong);
  const std::vector<int64_t> counts = {3};
  group->all_to_all(moved, rows, counts, counts)->wait();
  EXPECT_TRUE(at::equal(moved, rows));
}

TEST(FakeGroup, WorksWithoutMemoryForTheTensors) {
  const auto world = make_fake_world(511, 512);
  const GroupPtr group = world->group("fsdp", ranks(512));
  const auto meta = at::TensorOptions().device(at::kMeta).dtype(at::kBFloat16);
  const Tensor shard = at::empty({1 << 20, 4}, meta), whole = at::empty({512 << 20, 4}, meta);
  group->all_gather(whole, shard)->wait();
  group->reduce_scatter(shard, whole, Reduce::kSum)->wait();
  EXPECT_EQ(whole.numel(), 512 * shard.numel());
}

}  // namespace
}  // namespace titanium::comm
