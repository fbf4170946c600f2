// What the flight recorder costs a collective: `bench_flight_recorder CAPACITY DEVICE`, where CAPACITY is
// comm.trace_buf_size and DEVICE is cpu or cuda. Prints two numbers of nanoseconds: of our own records of one
// collective alone, and of the host's whole time for a small all-reduce in a group of one, over NCCL or Gloo, whose
// back end may record as well.
#include "titanium/comm/flight_recorder.h"

#include <ATen/ops/ones.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "titanium/comm/connect.h"
#include "titanium/comm/nccl_environment.h"
#include "titanium/comm/rendezvous/socket.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::comm {
namespace {

double nanoseconds(int runs, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  for (int run = 0; run < runs; ++run) work();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / runs;
}

double recorder_alone(int64_t capacity) {
  FlightRecorder recorder(static_cast<size_t>(std::max<int64_t>(1, capacity)));
  const auto group = recorder.add_group("fsdp", 0, {0});
  const auto record = [&] {
    const uint64_t sequence =
        recorder.issue({.name = "all_reduce", .group = group, .input = {4}, .output = {4}, .dtype = at::kFloat});
    recorder.waiting(sequence);
    recorder.finished(sequence, /*failed=*/false);
  };
  nanoseconds(50'000, record);  // every entry of the ring has been written once
  return nanoseconds(200'000, record);
}

double collective(int64_t capacity, Device device) {
  set_flight_recorder_environment(capacity);
  flight_recorder().set_capacity(static_cast<size_t>(std::max<int64_t>(1, capacity)));
  ConnectOptions options;
  options.environment.master_port = listen_at("127.0.0.1", 0, Reach::kThisMachine).port;
  options.device = device;
  options.connect_groups_of_one = true;
  const auto world = connect(options);
  const GroupPtr group = world->group("fsdp", {0});
  const Tensor tensor = at::ones({4}, at::TensorOptions(device));
  const auto some = [&] {
    for (int i = 0; i < 100; ++i) group->all_reduce(tensor, Reduce::kSum)->wait();
    if (device.is_cuda()) synchronize_gpu();  // its queue never becomes full
  };
  nanoseconds(20, some);
  return nanoseconds(200, some) / 100;
}

}  // namespace
}  // namespace titanium::comm

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: bench_flight_recorder CAPACITY DEVICE\n");
    return 2;
  }
  const int64_t capacity = std::atoll(arguments[1]);
  const titanium::Device device = titanium::parse_device(arguments[2], /*local_rank=*/0);
  const double alone = titanium::comm::recorder_alone(capacity);
  std::printf("%.1f %.1f\n", alone, titanium::comm::collective(capacity, device));
}
