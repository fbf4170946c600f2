#include "titanium/train/start_world.h"

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/comm/connect.h"
#include "titanium/comm/flight_recorder.h"
#include "titanium/comm/nccl_environment.h"
#include "titanium/remote/transport/retry.h"
#include "titanium/tensor/gpu_backend.h"
#include "titanium/train/flight/dump.h"

namespace titanium::train {
namespace {

int fake_world_size() {
  const char* value = std::getenv("NGPU");
  const std::string_view text = value == nullptr ? "" : value;
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size < 1) {
    throw UsageError(
        fmt::format("NGPU = \"{}\" is not a number of ranks. comm.mode = \"fake_backend\" takes the number of ranks to "
                    "simulate from the variable NGPU.",
                    text));
  }
  return size;
}

std::filesystem::path dump_folder(const JobConfig& config) {
  return std::filesystem::path(config.job.dump_folder) / config.comm.save_traces_folder;
}

// So that what is found after a failure belongs to it. One process of each node does so, before there is anybody to
// fail; on a disk that the nodes share, the first one wins.
void set_aside_old_dumps(const JobConfig& config) {
  const std::filesystem::path folder = dump_folder(config), previous = folder.string() + "_previous";
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) return;
  std::filesystem::remove_all(previous, ignored);
  std::filesystem::rename(folder, previous, ignored);
}

enum class Dumps { kAgain, kOnce };

void write_dumps(const JobConfig& config, Dumps dumps) {
  if (config.comm.trace_buf_size == 0) return;
  static std::mutex one_at_a_time;
  static auto& done_once = *new std::set<std::filesystem::path>;  // threads may outlive the destruction of statics
  const std::filesystem::path folder = dump_folder(config);
  const std::lock_guard lock(one_at_a_time);
  if (dumps == Dumps::kOnce && !done_once.insert(folder).second) return;
  try {
    const auto files = write_flight_dumps(comm::flight_recorder(), folder / config.comm.save_traces_file_prefix);
    for (const std::filesystem::path& file : files) log_info("Wrote the last collectives to {}", file.string());
  } catch (const std::exception& error) {
    log_warning("the flight recorder could not be written: {}", error.what());
  }
}

}  // namespace

comm::Environment ranks_of_run(const config::Comm& options) {
  if (options.mode != "fake_backend") return comm::read_environment();
  comm::Environment ranks;
  ranks.world_size = fake_world_size();
  return ranks;
}

Device pick_device(const JobConfig& config, const comm::Environment& ranks) {
  const bool shares = config.comm.backend == "gloo" && gpu_device_count() > 0;
  return parse_device(config.training.device, shares ? ranks.local_rank % gpu_device_count() : ranks.local_rank);
}

std::shared_ptr<comm::World> start_world(const JobConfig& config, const comm::Environment& ranks, Device device,
                                         std::function<void(const std::string& line)> on_peer_failure) {
  if (config.comm.mode == "fake_backend") return comm::make_fake_world(ranks.rank, ranks.world_size);
  if (config.comm.backend == "nccl" && !device.is_cuda()) {
    throw UsageError("comm.backend = \"nccl\" needs a GPU. Use \"auto\" or \"gloo\".");
  }
  if (device.is_cuda() && config.comm.backend != "gloo" && ranks.world_size > 1) {
    comm::set_flight_recorder_environment(config.comm.trace_buf_size);
  }
  comm::flight_recorder().set_capacity(static_cast<size_t>(std::max<int64_t>(1, config.comm.trace_buf_size)));
  if (ranks.world_size > 1 && ranks.local_rank == 0) set_aside_old_dumps(config);
  comm::ConnectOptions options;
  options.environment = ranks;
  options.device = device;
  if (config.comm.backend == "gloo") options.cuda_carrier = comm::ConnectOptions::Carrier::kGloo;
  options.init_timeout = std::chrono::seconds(config.comm.init_timeout_seconds);
  // A read may begin before the first step and end after it.
  remote::set_patience(remote::patience_within(
      std::chrono::seconds(std::min(config.comm.init_timeout_seconds, config.comm.train_timeout_seconds))));
  options.connect_groups_of_one = config.parallelism.fsdp_on_one_rank;
  options.on_peer_failure = [config, rank = ranks.rank, report = std::move(on_peer_failure)](const std::string& news) {
    dump_flights_of_failure(config);
    report(comm::stop_line(rank, news));
  };
  return comm::connect(options);
}

void dump_flight_recorder(const JobConfig& config) { write_dumps(config, Dumps::kAgain); }

void dump_flights_of_failure(const JobConfig& config) { write_dumps(config, Dumps::kOnce); }

}  // namespace titanium::train
