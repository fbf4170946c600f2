#include "titanium/train/profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <chrono>
#include <cstdlib>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/tensor/gpu_backend.h"

// Declared in torch/csrc/profiler/kineto_shim.h, which needs a search path of Kineto's own.
namespace torch::autograd::profiler {
// NOLINTNEXTLINE(readability-identifier-naming): the name is theirs.
TORCH_API void addMetadataJson(const std::string& key, const std::string& value);
}  // namespace torch::autograd::profiler

namespace titanium::train {
namespace {

using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

ProfilerConfig kineto_config() { return ProfilerConfig(ProfilerState::KINETO, /*report_input_shapes=*/true); }

std::set<ActivityType> activities(Device device) {
  if (device.is_cuda()) return {ActivityType::CPU, ActivityType::CUDA};
  return {ActivityType::CPU};
}

constexpr const char* kUnloads = "TEARDOWN_CUPTI";

// What Kineto reads from the environment, unless the user says otherwise. Returns whether it unloads CUPTI after a
// cycle because of this: CUPTI slows every launch down as long as it is loaded. It is unloaded while the next steps
// run, and a cycle that began at once could meet that half way.
bool set_kineto_defaults(const config::Profiling& options) {
  ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);  // its own lines are for its developers
  const bool pauses = options.profile_freq > options.profiler_warmup + options.profiler_active;
  if (!pauses || std::getenv(kUnloads) != nullptr) return false;
  ::setenv(kUnloads, "1", /*overwrite=*/1);
  return true;
}

// Beside its place first, so that a reader never finds half of a trace.
void write_trace(torch::autograd::profiler::ProfilerResult& trace, const std::filesystem::path& file) {
  std::filesystem::create_directories(file.parent_path());
  const std::filesystem::path partial = file.parent_path() / fmt::format(".{}.partial", file.filename().string());
  trace.save(partial.string());
  std::filesystem::rename(partial, file);
}

}  // namespace

ProfilerPhase profiler_phase(const config::Profiling& options, int64_t step) {
  const int64_t left = options.profile_freq - 1 - (step - 1) % options.profile_freq;  // steps of the cycle after this
  if (left < options.profiler_active) return ProfilerPhase::kRecord;
  return left < options.profiler_active + options.profiler_warmup ? ProfilerPhase::kWarmup : ProfilerPhase::kWait;
}

Profiler::Profiler(const JobConfig& config, Device device, int rank, int world_size, int64_t finished_steps)
    : options_(config.profiling),
      folder_(std::filesystem::path(config.job.dump_folder) / options_.save_traces_folder),
      device_(device),
      rank_(rank),
      world_size_(world_size),
      last_step_(config.training.steps) {
  if (!options_.enable_profiling) return;
  unloads_ = set_kineto_defaults(options_);
  log_info("Profiling active. Traces will be saved at {}", folder_.string());
  begin_step(finished_steps + 1);
}

Profiler::~Profiler() {
  try {
    stop(std::nullopt);
  } catch (const std::exception& error) {
    log_warning("the profiler could not be stopped: {}", error.what());
  }
}

void Profiler::after_step(int64_t step) {
  if (!options_.enable_profiling) return;
  range_.reset();
  if (recording_ && step % options_.profile_freq == 0) stop(step);
  begin_step(step + 1);
}

void Profiler::finish() {
  range_.reset();
  last_step_ = step_ - 1;  // also of a run that is stopped early
  if (recording_ && profiler_phase(options_, step_ - 1) == ProfilerPhase::kRecord) stop(step_ - 1);
}

void Profiler::begin_step(int64_t step) {
  step_ = step;
  const ProfilerPhase phase = profiler_phase(options_, step);
  if (phase == ProfilerPhase::kWait) return;
  if (!prepared_) prepare();
  if (phase == ProfilerPhase::kWarmup) return;
  if (!recording_) start();
  range_.emplace(fmt::format("ProfilerStep#{}", step));
}

void Profiler::prepare() {
  torch::autograd::profiler::prepareProfiler(kineto_config(), activities(device_));
  prepared_ = true;
}

void Profiler::start() {
  torch::autograd::profiler::enableProfiler(kineto_config(), activities(device_));
  recording_ = true;
  TraceScope::set_profiled(true);
  torch::autograd::profiler::addMetadataJson("record_shapes", "1");
  torch::autograd::profiler::addMetadataJson("distributedInfo",
                                             fmt::format(R"({{"backend": "{}", "rank": {}, "world_size": {}}})",
                                                         device_.is_cuda() ? "nccl" : "gloo", rank_, world_size_));
}

void Profiler::stop(std::optional<int64_t> step) {
  range_.reset();
  if (!prepared_) return;
  if (!recording_) start();  // warming up can only be ended so
  if (device_.is_cuda()) synchronize_gpu();
  TraceScope::set_profiled(false);
  prepared_ = recording_ = false;
  // CUPTI is unloaded inside the next call of the device, for which a thread waits. After the last step there may be
  // none before the program ends.
  const bool goes_on = step && *step < last_step_;
  if (unloads_ && !goes_on) ::setenv(kUnloads, "0", /*overwrite=*/1);
  const auto trace = torch::autograd::profiler::disableProfiler();
  if (!step) return;
  const std::filesystem::path file =
      folder_ / fmt::format("iteration_{}", *step) / fmt::format("rank{}_trace.json", rank_);
  log_info("Dumping profiler traces at step {}", *step);
  const auto begin = std::chrono::steady_clock::now();
  try {
    write_trace(*trace, file);
  } catch (const std::exception& error) {
    return log_warning("the trace {} cannot be written: {}. Check the folder and its free space.", file.string(),
                       error.what());
  }
  log_info("Finished dumping profiler traces in {:.2f} seconds",
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

}  // namespace titanium::train
