// One rank of a job whose ranks lose each other, for flight.py: flight_driver FAULT FOLDER. Rank 1 is the culprit.
//
//   none        everybody does the same
//   mismatched  it gathers where the others reduce
//   missing     it leaves a collective out and waits in another group
//   hanging     it computes forever
//   messages    it does not receive the third message of rank 0
//
// At the end, or when a collective fails on any rank, each rank writes its dump into FOLDER.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "titanium/comm/connect.h"
#include "titanium/comm/flight_recorder.h"
#include "titanium/train/start_world.h"

namespace {

using namespace titanium;
using namespace titanium::comm;

void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void exchange_messages(Group& pipeline, bool faulty) {
  for (int message = 1; message <= 3; ++message) {
    const Tensor tensor = at::ones({4});
    if (pipeline.rank() == 0) pipeline.send(tensor, 1)->wait();
    if (pipeline.rank() == 1 && faulty && message == 3) hang();
    if (pipeline.rank() == 1) pipeline.receive(tensor, 0)->wait();
  }
}

void run(World& world, const std::string& fault) {
  const bool faulty = world.rank() == 1;
  const GroupPtr data = world.host_group("dp", {0, 1, 2}), other = world.host_group("tp", {0, 1, 2});
  const GroupPtr pipeline = world.host_group("pp", {0, 1, 2});
  world.set_timeout(std::chrono::seconds(3));
  const Tensor tensor = at::ones({8});
  for (int64_t step = 1; step <= 3; ++step) {
    flight_recorder().set_step(step);
    const bool strikes = faulty && step == 3;
    data->all_reduce(tensor, Reduce::kSum)->wait();
    if (strikes && fault == "hanging") hang();
    if (strikes && fault == "mismatched") {
      data->all_gather(at::zeros({24}), tensor)->wait();
    } else if (!strikes || fault != "missing") {
      data->all_reduce(tensor, Reduce::kSum)->wait();
    }
    other->barrier();
  }
  exchange_messages(*pipeline, fault == "messages");
  other->barrier();
}

}  // namespace

int main(int, char** arguments) {
  const std::filesystem::path folder(arguments[2]);
  JobConfig config;
  config.job.dump_folder = folder.parent_path();
  config.comm.save_traces_folder = folder.filename();
  ConnectOptions options;
  options.environment = read_environment();
  options.init_timeout = std::chrono::seconds(60);
  options.on_peer_failure = [&](const std::string&) {
    train::dump_flights_of_failure(config);
    ::_exit(1);
  };
  const std::unique_ptr<World> world = connect(options);
  try {
    run(*world, arguments[1]);
    train::dump_flight_recorder(config);
  } catch (const std::exception& error) {
    train::dump_flights_of_failure(config);
    world->report_failure(error.what());
    ::_exit(1);
  }
  return 0;
}
