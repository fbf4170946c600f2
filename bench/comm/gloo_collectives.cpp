// Time of collectives between processes of this machine over Gloo: `bench_gloo_collectives [ranks]`.
// bench/gloo_collectives.py measures the same with torch.distributed and prints both.
#include <ATen/ops/ones.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "titanium/comm/connect.h"
#include "titanium/comm/rendezvous/socket.h"

namespace titanium::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 20;

double milliseconds(Group& group, const std::function<Work()>& collective) {
  collective()->wait();
  group.barrier();
  const auto start = Clock::now();
  for (int run = 0; run < kRuns; ++run) collective()->wait();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / kRuns;
}

void measure(int rank, int size, int port) {
  ConnectOptions options;
  options.environment.rank = rank;
  options.environment.world_size = size;
  options.environment.master_port = port;
  const std::unique_ptr<World> world = connect(options);
  std::vector<int> all;
  for (int member = 0; member < size; ++member) all.push_back(member);
  const GroupPtr group = world->group("bench", all);
  for (const int64_t elements : {int64_t{1} << 8, int64_t{1} << 14, int64_t{1} << 20, int64_t{1} << 23}) {
    const Tensor whole = at::ones({elements}), part = at::ones({elements / size});
    const double reduce = milliseconds(*group, [&] { return group->all_reduce(whole, Reduce::kMax); });
    const double gather = milliseconds(*group, [&] { return group->all_gather(whole, part); });
    const double scatter = milliseconds(*group, [&] { return group->reduce_scatter(part, whole, Reduce::kSum); });
    if (rank == 0) std::printf("%ld %.3f %.3f %.3f\n", elements, reduce, gather, scatter);
  }
}

}  // namespace
}  // namespace titanium::comm

int main(int count, char** arguments) {
  const int size = count > 1 ? std::atoi(arguments[1]) : 4;
  const int port = titanium::comm::listen_at("127.0.0.1", 0, titanium::comm::Reach::kThisMachine).port;
  for (int rank = 0; rank < size; ++rank) {
    if (::fork() != 0) continue;
    titanium::comm::measure(rank, size, port);
    std::fflush(stdout);
    ::_exit(0);
  }
  int failed = 0;
  for (int status; ::wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}
