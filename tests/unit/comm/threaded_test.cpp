// Ranks as threads: what each collective gives, and what happens when ranks lose each other.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/tensors.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/comm/error.h"
#include "titanium/comm/text_collectives.h"

namespace titanium::comm {
namespace {

using test::run_ranks;

const std::vector<int> kAll = {0, 1, 2, 3};
constexpr Dtype kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte};

// 24 small whole numbers that differ per rank, each rank's largest at other places: exact in every dtype.
Tensor values(int rank, Dtype dtype = at::kFloat) {
  return (at::arange(24) * (2 * rank + 1) % 7 + (rank + 2) % 4).to(dtype);
}

Tensor reduced(Reduce op, Dtype dtype) {
  std::vector<Tensor> all;
  for (const int rank : kAll) all.push_back(values(rank, at::kDouble));
  const Tensor stacked = at::stack(all);
  const Tensor result = op == Reduce::kMax ? stacked.amax(0) : op == Reduce::kSum ? stacked.sum(0) : stacked.mean(0);
  return result.to(dtype);  // integers: towards zero
}

TEST(ThreadedGroup, ReducesEveryDtypeWithEveryOperation) {
  for (const Dtype dtype : kDtypes) {
    for (const Reduce op : {Reduce::kSum, Reduce::kMax, Reduce::kAvg}) {
      run_ranks(4, [&](World& world) {
        const GroupPtr group = world.group("dp", kAll);
        const Tensor whole = values(world.rank(), dtype), out = at::zeros({6}, dtype);
        group->reduce_scatter(out, whole, op)->wait();
        EXPECT_TRUE(at::equal(out, reduced(op, dtype).narrow(0, 6 * world.rank(), 6))) << dtype;
        group->all_reduce(whole, op)->wait();
        EXPECT_TRUE(at::equal(whole, reduced(op, dtype))) << dtype;
      });
    }
  }
}

TEST(ThreadedGroup, ExchangesTextsOfAnyLength) {
  const auto text = [](int from, int to) {
    return std::string(static_cast<size_t>(from * to), static_cast<char>('a' + from));
  };
  run_ranks(4, [&](World& world) {
    std::vector<std::string> sent, expected;
    for (const int rank : kAll) {
      sent.push_back(text(world.rank(), rank));
      expected.push_back(text(rank, world.rank()));
    }
    EXPECT_EQ(exchange_texts(*world.host_group("all", kAll), sent), expected);
  });
}

TEST(ThreadedGroup, RoundsSixteenBitSumsOnce) {
  run_ranks(4, [&](World& world) {
    // 256 + 1 + 1 + 1: each step alone rounds to 256 in bfloat16.
    const Tensor x = at::full({3}, world.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    world.group("dp", kAll)->all_reduce(x, Reduce::kSum)->wait();
    EXPECT_EQ(x[0].item<float>(), 260.0f);  // 259 lies between 258 and 260, the tie goes to the even one
  });
}

TEST(ThreadedGroup, GathersInTheOrderOfRanksAlsoInPlace) {
  run_ranks(4, [&](World& world) {
    const GroupPtr group = world.group("fsdp", kAll);
    std::vector<Tensor> all;
    for (const int rank : kAll) all.push_back(values(rank));
    const Tensor out = at::zeros({4, 24}), in_place = at::zeros({4, 24});
    group->all_gather(out, values(world.rank()))->wait();
    in_place[world.rank()].copy_(values(world.rank()));
    group->all_gather(in_place, in_place[world.rank()])->wait();
    EXPECT_TRUE(at::equal(out, at::stack(all)));
    EXPECT_TRUE(at::equal(in_place, at::stack(all)));
  });
}

TEST(ThreadedGroup, BroadcastsFromAnyRoot) {
  run_ranks(4, [&](World& world) {
    for (const int root : kAll) {
      const Tensor x = values(world.rank());
      world.group("dp", kAll)->broadcast(x, root)->wait();
      EXPECT_TRUE(at::equal(x, values(root)));
    }
  });
}

TEST(ThreadedGroup, ExchangesUnevenRows) {
  run_ranks(3, [](World& world) {
    const int64_t rank = world.rank();
    // Rank r sends r + to rows, which hold 10 r + to.
    std::vector<int64_t> in_rows, out_rows;
    std::vector<Tensor> in, expected;
    for (int64_t peer = 0; peer < 3; ++peer) {
      in_rows.push_back(rank + peer);
      out_rows.push_back(peer + rank);
      in.push_back(at::full({rank + peer, 2}, 10 * rank + peer, at::kLong));
      expected.push_back(at::full({peer + rank, 2}, 10 * peer + rank, at::kLong));
    }
    const Tensor wanted = at::cat(expected), out = at::zeros_like(wanted);
    world.group("ep", {0, 1, 2})->all_to_all(out, at::cat(in), out_rows, in_rows)->wait();
    EXPECT_TRUE(at::equal(out, wanted));
  });
}

TEST(ThreadedGroup, SendsInOrder) {
  run_ranks(2, [](World& world) {
    const GroupPtr group = world.group("pp", {0, 1});
    const Tensor first = at::zeros({24}), second = at::zeros({24});
    if (world.rank() == 0) {
      group->send(values(5), 1)->wait();
      group->send(values(6), 1)->wait();
      return;
    }
    const Work a = group->receive(first, 0), b = group->receive(second, 0);
    b->wait();
    a->wait();
    EXPECT_TRUE(at::equal(first, values(5)));
    EXPECT_TRUE(at::equal(second, values(6)));
  });
}

TEST(ThreadedGroup, LetsManyCollectivesBeUnderWay) {
  run_ranks(4, [&](World& world) {
    const GroupPtr group = world.group("fsdp", kAll);
    std::vector<Tensor> outs;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      outs.push_back(at::zeros({4}));
      works.push_back(group->all_gather(outs.back(), at::full({1}, 100 * i + world.rank(), at::kFloat)));
    }
    for (int i = 19; i >= 0; --i) {
      works[i]->wait();
      EXPECT_TRUE(at::equal(outs[i], at::arange(4).to(at::kFloat) + 100 * i));
    }
  });
}

TEST(ThreadedGroup, DisjointGroupsOfOneAxisDoNotMeet) {
  run_ranks(4, [](World& world) {
    const int first = world.rank() / 2 * 2;
    const GroupPtr tp = world.group("tp", {first, first + 1});
    const GroupPtr dp = world.group("dp", {world.rank() % 2, world.rank() % 2 + 2});
    const GroupPtr alone = world.group("pp", {world.rank()});
    const Tensor x = at::full({1}, world.rank(), at::kLong), y = x.clone(), z = x.clone();
    const Work a = tp->all_reduce(x, Reduce::kSum), b = dp->all_reduce(y, Reduce::kSum);
    b->wait();
    a->wait();
    alone->all_reduce(z, Reduce::kSum)->wait();
    EXPECT_EQ(x.item<int64_t>(), 2 * first + 1);
    EXPECT_EQ(y.item<int64_t>(), 2 * (world.rank() % 2) + 2);
    EXPECT_EQ(z.item<int64_t>(), world.rank());
  });
}

TEST(ThreadedGroup, BarrierHoldsUntilAllAreThere) {
  std::atomic<int> arrived = 0;
  run_ranks(4, [&](World& world) {
    ++arrived;
    world.group("world", kAll)->barrier();
    EXPECT_EQ(arrived.load(), 4);
  });
}

std::string message_of_failure(int size, const std::function<void(World&)>& body) {
  try {
    run_ranks(size, body);
  } catch (const CommError& error) {
    return error.what();
  }
  return "no CommError";
}

TEST(ThreadedGroup, ARankThatLeavesIsNamed) {
  const std::string message = message_of_failure(3, [](World& world) {
    if (world.rank() == 2) return;
    const Tensor x = at::zeros({1});
    if (world.rank() == 0) world.group("dp", {0, 1, 2})->all_reduce(x, Reduce::kSum)->wait();
  });
  EXPECT_NE(message.find("rank 0: all_reduce on axis dp failed in step"), std::string::npos) << message;
  EXPECT_NE(message.find("has left"), std::string::npos) << message;
}

TEST(ThreadedGroup, DifferentCallsOnTwoRanksAreNamed) {
  const std::string message = message_of_failure(2, [](World& world) {
    const Tensor x = at::zeros({world.rank() + 1});
    world.group("dp", {0, 1})->all_reduce(x, Reduce::kSum)->wait();
  });
  EXPECT_NE(message.find("all_reduce of 1 float32"), std::string::npos) << message;
  EXPECT_NE(message.find("all_reduce of 2 float32"), std::string::npos) << message;
}

TEST(ThreadedGroup, WaitingEndsAfterTheTimeout) {
  const std::string message = message_of_failure(2, [](World& world) {
    world.set_timeout(std::chrono::milliseconds(50));
    const GroupPtr group = world.group("dp", {0, 1});
    const Tensor x = at::zeros({1});
    if (world.rank() == 0) group->all_reduce(x, Reduce::kSum)->wait();
    if (world.rank() == 1) group->receive(x, 0)->wait();
  });
  EXPECT_NE(message.find("within 0.05 s"), std::string::npos) << message;
}

TEST(ThreadedGroup, ResultsAreNoChangesInPlaceForAutograd) {
  run_ranks(2, [](World& world) {
    const Tensor weight = at::full({2}, 3.0f).requires_grad_(true);
    const Tensor y = (weight * weight).sum();
    world.group("dp", {0, 1})->all_reduce(weight, Reduce::kAvg)->wait();
    y.backward();
    EXPECT_EQ(weight.grad()[0].item<float>(), 6.0f);
  });
}

TEST(Group, RefusesWhatNoBackEndCanExchange) {
  const auto world = make_fake_world(0, 4);
  const GroupPtr group = world->group("dp", {0, 1, 2, 3});
  EXPECT_THROW((void)group->all_reduce(at::zeros({4, 4}).t().slice(0, 1), Reduce::kSum), std::logic_error);
  EXPECT_THROW((void)group->all_gather(at::zeros({7}), at::zeros({2})), std::logic_error);
  EXPECT_THROW((void)group->broadcast(at::zeros({7}), 4), std::logic_error);
  EXPECT_THROW((void)world->group("dp", {1, 2}), std::logic_error);
  EXPECT_THROW((void)world->group("dp", {1, 0}), std::logic_error);
}

}  // namespace
}  // namespace titanium::comm
