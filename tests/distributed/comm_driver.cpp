// One rank of a job, for collectives.py: runs collectives on known values and writes the results, or runs steps until
// something fails.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "titanium/base/log.h"
#include "titanium/comm/connect.h"
#include "titanium/comm/error.h"
#include "titanium/comm/flight_recorder.h"

namespace titanium::comm {
namespace {

int variable(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

ConnectOptions options_from_environment() {
  ConnectOptions options;
  Environment& environment = options.environment;
  environment.rank = variable("RANK", 0);
  environment.world_size = variable("WORLD_SIZE", 1);
  environment.master_port = variable("MASTER_PORT", 29500);
  if (const char* address = std::getenv("MASTER_ADDR")) environment.master_addr = address;
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  environment.agent_hosts_store = agent && std::string_view(agent) == "True";
  options.init_timeout = std::chrono::seconds(variable("INIT_TIMEOUT", 120));
  options.on_peer_failure = [rank = environment.rank](const std::string& news) {
    std::fprintf(stderr, "%s\n", stop_line(rank, news).c_str());
    ::_exit(3);
  };
  return options;
}

// What collectives.py computes too. Small whole numbers: exact in every dtype, also their sums.
Tensor values(int rank, int64_t count, Dtype dtype) { return ((at::arange(count) * 5 + rank * 3) % 11).to(dtype); }

class Results {
 public:
  Results(std::string folder, int rank) : folder_(std::move(folder)), rank_(rank) {}

  void write(const std::string& name, const Tensor& tensor) const {
    const Tensor values = tensor.to(at::kDouble).contiguous();
    std::ofstream file(fmt::format("{}/{}.{}", folder_, name, rank_), std::ios::binary);
    file.write(static_cast<const char*>(values.data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  }

 private:
  std::string folder_;
  int rank_;
};

constexpr std::pair<const char*, Dtype> kDtypes[] = {
    {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"int64", at::kLong}};
constexpr std::pair<const char*, Reduce> kReductions[] = {
    {"sum", Reduce::kSum}, {"max", Reduce::kMax}, {"avg", Reduce::kAvg}};

// Issues everything before it waits for anything.
void run_all(Group& group, const std::string& label, int64_t count, const Results& results) {
  const int rank = group.rank(), size = group.size();
  std::vector<std::pair<std::string, Tensor>> outputs;
  std::vector<Work> works;
  const auto issue = [&](const std::string& name, const Tensor& out, Work work) {
    outputs.emplace_back(label + "-" + name, out);
    works.push_back(std::move(work));
  };
  for (const auto& [dtype_label, dtype] : kDtypes) {
    for (const auto& [op_label, op] : kReductions) {
      const Tensor whole = values(rank, count * size, dtype), part = at::zeros({count}, dtype);
      issue(fmt::format("all_reduce-{}-{}", dtype_label, op_label), whole, group.all_reduce(whole, op));
      issue(fmt::format("reduce_scatter-{}-{}", dtype_label, op_label), part,
            group.reduce_scatter(part, values(rank, count * size, dtype), op));
    }
    const Tensor gathered = at::zeros({size, count}, dtype), in_place = at::zeros({size, count}, dtype);
    in_place[rank].copy_(values(rank, count, dtype));
    issue(fmt::format("all_gather-{}", dtype_label), gathered, group.all_gather(gathered, values(rank, count, dtype)));
    issue(fmt::format("in_place-{}", dtype_label), in_place, group.all_gather(in_place, in_place[rank]));
    const Tensor sent = values(rank, count, dtype);
    issue(fmt::format("broadcast-{}", dtype_label), sent, group.broadcast(sent, size - 1));
    // rank + to rows go to rank `to`, so rank 0 sends itself none.
    std::vector<int64_t> rows;
    int64_t sum = 0;
    for (int peer = 0; peer < size; ++peer) sum += rows.emplace_back(rank + peer);
    const Tensor out = at::zeros({sum, 2}, dtype);
    issue(fmt::format("all_to_all-{}", dtype_label), out,
          group.all_to_all(out, values(rank, sum * 2, dtype).view({sum, 2}), rows, rows));
    const Tensor letter = at::zeros({count}, dtype);
    works.push_back(group.send(values(rank, count, dtype), (rank + 1) % size));
    issue(fmt::format("receive-{}", dtype_label), letter, group.receive(letter, (rank + size - 1) % size));
  }
  for (const Work& work : works) work->wait();
  for (const auto& [name, tensor] : outputs) results.write(name, tensor);
  group.barrier();
}

void run_collectives(World& world, const std::string& folder) {
  const Results results(folder, world.rank());
  run_all(*world.group("all", {0, 1, 2, 3}), "all", 6, results);
  run_all(*world.host_group("large", {0, 1, 2, 3}), "large", 20000, results);
  const int odd = world.rank() % 2;
  run_all(*world.group("pair", {odd, odd + 2}), "pair", 5, results);
  if (world.rank() > 0) run_all(*world.group("three", {1, 2, 3}), "three", 3, results);
}

// Steps that never end by themselves. Rank `thrower` throws in step 5.
void run_steps(World& world, int thrower) {
  std::vector<int> all(world.size());
  for (int rank = 0; rank < world.size(); ++rank) all[rank] = rank;
  const GroupPtr group = world.group("fsdp", all);
  world.set_timeout(std::chrono::seconds(variable("TRAIN_TIMEOUT", 60)));
  for (int64_t step = 1;; ++step) {
    flight_recorder().set_step(step);
    TI_CHECK(world.rank() != thrower || step < 5, "no data for step {}", step);
    const Tensor gathered = at::zeros({world.size(), 4});
    group->all_gather(gathered, at::full({4}, 1.0f))->wait();
    if (world.rank() == 0 && step == 2) std::fprintf(stderr, "running\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// A world that an exception unwinds, without a report of the program.
void run_and_unwind(const ConnectOptions& options, int thrower) {
  const std::unique_ptr<World> world = connect(options);
  run_steps(*world, thrower);
}

int run(const std::string& what, const std::string& argument) {
  const ConnectOptions options = options_from_environment();
  std::unique_ptr<World> world;
  try {
    if (what == "unwind") run_and_unwind(options, std::stoi(argument));
    world = connect(options);
    if (what == "collectives") run_collectives(*world, argument);
    if (what == "steps") run_steps(*world, std::stoi(argument));
  } catch (const std::exception& error) {
    if (world) world->report_failure(error.what());
    std::fprintf(stderr, "rank %d ends: %s\n", options.environment.rank, error.what());
    std::fflush(stderr);
    ::_exit(1);
  }
  return 0;
}

}  // namespace
}  // namespace titanium::comm

// comm_driver collectives FOLDER | comm_driver steps RANK_THAT_THROWS | comm_driver unwind RANK_THAT_THROWS
int main(int count, char** arguments) {
  if (count != 3) return 2;
  titanium::log_to_stdout(titanium::LogLevel::kDebug);
  return titanium::comm::run(arguments[1], arguments[2]);
}
