#include "titanium/doctor/gpu_health.h"

#include <fmt/ranges.h>

#include "titanium/base/error.h"
#include "titanium/base/machine/nvml.h"

namespace titanium::doctor {
namespace {

constexpr int kClockOfMultiprocessors = 1, kSensorOfGpu = 0, kUncorrected = 1, kSinceDriverLoad = 0;

struct Reason {
  uint64_t bit;
  const char* meaning;
};
constexpr Reason kBadReasons[] = {
    {0x08, "hardware slowdown"}, {0x20, "too hot (software)"}, {0x40, "too hot (hardware)"}, {0x80, "power brake"}};

}  // namespace

std::optional<GpuHealth> read_gpu_health(const std::string& pci_bus_id) {
  const Nvml nvml;
  Nvml::Device device = nullptr;
  if (!nvml.ready() || !nvml.ask("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device)) return std::nullopt;
  GpuHealth health;
  char driver[96] = "unknown";
  nvml.ask("nvmlSystemGetDriverVersion", &driver[0], static_cast<unsigned>(sizeof driver));
  health.driver = driver;
  nvml.ask("nvmlDeviceGetClockInfo", device, kClockOfMultiprocessors, &health.clock_mhz);
  nvml.ask("nvmlDeviceGetMaxClockInfo", device, kClockOfMultiprocessors, &health.most_clock_mhz);
  nvml.ask("nvmlDeviceGetTemperature", device, kSensorOfGpu, &health.temperature);
  unsigned long long reasons = 0, errors = 0;
  nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons);
  health.throttle_reasons = reasons;
  if (nvml.ask("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kSinceDriverLoad, &errors)) {
    health.uncorrected_errors = errors;
  }
  NvmlMemory memory{};
  if (nvml.ask("nvmlDeviceGetMemoryInfo", device, &memory)) health.used_bytes = memory.used;
  return health;
}

std::vector<Finding> judge_gpu_health(const GpuHealth& health, uint64_t own_bytes) {
  Finding clocks{
      .check = "GPU clocks",
      .fact = fmt::format("{} of {} MHz under load, {} C", health.clock_mhz, health.most_clock_mhz, health.temperature),
      .figures = {{"clock_mhz", health.clock_mhz}, {"temperature", health.temperature}}};
  std::vector<std::string> reasons;
  for (const Reason& reason : kBadReasons) {
    if ((health.throttle_reasons & reason.bit) != 0) reasons.emplace_back(reason.meaning);
  }
  if (!reasons.empty()) {
    clocks.severity = Severity::kWarning;
    clocks.fact += fmt::format("; throttled: {}", fmt::join(reasons, ", "));
    clocks.remedy = "Look at its cooling and power supply (nvidia-smi -q -d PERFORMANCE), or leave the node out.";
  }
  Finding memory{
      .check = "GPU memory",
      .fact = health.uncorrected_errors ? fmt::format("{} uncorrected errors", *health.uncorrected_errors) : "no ECC"};
  if (health.uncorrected_errors.value_or(0) > 0) {
    memory.severity = Severity::kError;
    memory.remedy = "The memory is damaged: reset the GPU (nvidia-smi -r), and leave the node out if it comes again.";
  }
  std::vector<Finding> findings = {{.check = "driver", .fact = health.driver}, clocks, memory};
  constexpr uint64_t kLittle = uint64_t{2} << 30;  // what contexts take
  if (health.used_bytes > own_bytes + kLittle) {
    findings.push_back({.check = "GPU memory",
                        .severity = Severity::kWarning,
                        .fact = fmt::format("{:.1f} GiB are used by other processes",
                                            static_cast<double>(health.used_bytes - own_bytes) / (1 << 30)),
                        .remedy = "End them (nvidia-smi lists them), or leave the GPU out with CUDA_VISIBLE_DEVICES."});
  }
  return findings;
}

}  // namespace titanium::doctor
