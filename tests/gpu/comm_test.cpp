// Collectives on CUDA tensors: NCCL with one rank, Gloo with two ranks that share the GPU.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <thread>

#include "tests/gpu/gpu_test.h"
#include "titanium/comm/connect.h"
#include "titanium/comm/rendezvous/socket.h"

namespace titanium::comm {
namespace {

using GpuComm = test::GpuTest;

ConnectOptions options_for(int rank, int size, int port) {
  ConnectOptions options;
  options.environment.rank = rank;
  options.environment.world_size = size;
  options.environment.master_port = port;
  options.device = Device(at::kCUDA, 0);
  options.init_timeout = std::chrono::seconds(60);
  return options;
}

int free_port() { return listen_at("127.0.0.1", 0, Reach::kThisMachine).port; }

Tensor values(int rank, Dtype dtype, Device device) { return ((at::arange(24) * 5 + 3 * rank) % 11).to(device, dtype); }

// With two ranks, each of which holds values(rank): what every collective must give on `rank`.
struct Expected {
  Expected(int rank, int size, Dtype dtype, Device device) {
    sum = max = values(0, dtype, device);
    for (int peer = 1; peer < size; ++peer) {
      sum = sum + values(peer, dtype, device);
      max = at::maximum(max, values(peer, dtype, device));
    }
    part = sum.chunk(size)[rank];
    std::vector<Tensor> all;
    for (int peer = 0; peer < size; ++peer) all.push_back(values(peer, dtype, device));
    gathered = at::stack(all);
  }
  Tensor sum, max, part, gathered;
};

void expect_right_results(World& world, Dtype dtype, Device device) {
  std::vector<int> members;
  for (int rank = 0; rank < world.size(); ++rank) members.push_back(rank);
  const GroupPtr group = world.group("dp", members);
  const int rank = world.rank(), size = world.size();
  const Expected expected(rank, size, dtype, device);
  const auto mine = [&] { return values(rank, dtype, device); };
  const Tensor sum = mine(), avg = mine(), max = mine(), sent = mine(), swapped = at::zeros_like(mine());
  const Tensor part = at::zeros_like(expected.part), gathered = at::zeros_like(expected.gathered);
  const std::vector<int64_t> rows(size, 24 / size);
  std::vector<Work> works;
  works.push_back(group->all_reduce(sum, Reduce::kSum));
  works.push_back(group->all_reduce(avg, Reduce::kAvg));
  works.push_back(group->all_reduce(max, Reduce::kMax));
  works.push_back(group->reduce_scatter(part, mine(), Reduce::kSum));
  works.push_back(group->all_gather(gathered, mine()));
  works.push_back(group->broadcast(sent, size - 1));
  works.push_back(group->all_to_all(swapped, mine(), rows, rows));
  for (const Work& work : works) work->wait();
  group->barrier();
  EXPECT_TRUE(at::equal(sum, expected.sum));
  if (at::isFloatingType(dtype)) {
    EXPECT_TRUE(at::equal(avg, expected.sum / size));
  }
  EXPECT_TRUE(at::equal(max, expected.max));
  EXPECT_TRUE(at::equal(part, expected.part));
  EXPECT_TRUE(at::equal(gathered, expected.gathered));
  EXPECT_TRUE(at::equal(sent, values(size - 1, dtype, device)));
  for (int peer = 0; peer < size; ++peer)
    EXPECT_TRUE(at::equal(swapped.chunk(size)[peer], values(peer, dtype, device).chunk(size)[rank]));
  if (size == 1) return;
  const Tensor letter = at::zeros_like(mine());
  const Work out = group->send(mine(), 1 - rank), in = group->receive(letter, 1 - rank);
  in->wait();
  out->wait();
  EXPECT_TRUE(at::equal(letter, values(1 - rank, dtype, device)));
}

TEST_F(GpuComm, NcclWithOneRankGivesBackWhatItGot) {
  ConnectOptions options = options_for(0, 1, free_port());
  options.connect_groups_of_one = true;
  const std::unique_ptr<World> world = connect(options);
  for (const Dtype dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kByte}) expect_right_results(*world, dtype, gpu_);
  world->set_timeout(std::chrono::seconds(30));
  expect_right_results(*world, at::kFloat, gpu_);
}

TEST_F(GpuComm, NcclDoesNotMakeTheHostWait) {
  ConnectOptions options = options_for(0, 1, free_port());
  options.connect_groups_of_one = true;
  const std::unique_ptr<World> world = connect(options);
  const GroupPtr group = world->group("fsdp", {0});
  const Tensor in = at::full({1 << 20}, 3.0f, gpu_), out = at::zeros({1 << 20}, gpu_);
  group->all_gather(out, in)->wait();  // the first one may allocate
  {
    const ForbidGpuWaits forbid;
    const Tensor changed = in * 2;
    group->all_gather(out, changed)->wait();
    out.add_(1);
  }
  EXPECT_EQ(out[12345].item<float>(), 7.0f);
}

TEST_F(GpuComm, GlooCarriesCudaTensorsOfTwoRanksOnOneGpu) {
  const int port = free_port();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank, port] {
      ConnectOptions options = options_for(rank, 2, port);
      options.cuda_carrier = ConnectOptions::Carrier::kGloo;
      const std::unique_ptr<World> world = connect(options);
      for (const Dtype dtype : {at::kFloat, at::kBFloat16, at::kLong})
        expect_right_results(*world, dtype, options.device);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace titanium::comm
