#include "titanium/train/report/memory_monitor.h"

#include <unistd.h>

#include <fstream>

#include "titanium/base/log.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::train {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// What follows "key:" in one of the kernel's text files; empty if it is not there.
std::string field(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

int64_t peak_resident_bytes() {
  const std::string kilobytes = field("/proc/self/status", "VmHWM");
  return kilobytes.empty() ? 0 : std::stoll(kilobytes) * 1024;
}

int gpu_index(Device device) { return device.has_index() ? device.index() : 0; }

}  // namespace

MemoryMonitor::MemoryMonitor(Device device) : device_(device) {
  if (device.is_cuda()) {
    const GpuDeviceProperties properties = gpu_device_properties(gpu_index(device));
    device_name_ = properties.name;
    capacity_ = properties.total_memory;
  } else {
    const std::string model = field("/proc/cpuinfo", "model name");
    device_name_ = model.empty() ? "CPU" : model;
    capacity_ = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  }
}

MemoryPeak MemoryMonitor::in_gib(int64_t active, int64_t reserved) const {
  const auto percent = [&](int64_t bytes) {
    return 100.0 * static_cast<double>(bytes) / static_cast<double>(capacity_);
  };
  MemoryPeak peak;
  peak.max_active_gib = static_cast<double>(active) / kGib;
  peak.max_active_percent = percent(active);
  peak.max_reserved_gib = static_cast<double>(reserved) / kGib;
  peak.max_reserved_percent = percent(reserved);
  return peak;
}

MemoryPeak MemoryMonitor::peak() const {
  if (!device_.is_cuda()) {
    const int64_t resident = peak_resident_bytes();
    MemoryPeak peak = in_gib(resident, resident);
    peak.of_process = true;
    return peak;
  }
  const GpuMemory memory = gpu_memory(gpu_index(device_));
  MemoryPeak peak = in_gib(memory.max_active, memory.max_reserved);
  peak.alloc_retries = memory.alloc_retries;
  peak.ooms = memory.ooms;
  if (peak.alloc_retries > 0) log_warning("{} CUDA memory allocation retries.", peak.alloc_retries);
  if (peak.ooms > 0) log_warning("{} CUDA OOM errors thrown.", peak.ooms);
  return peak;
}

void MemoryMonitor::reset() {
  if (device_.is_cuda()) {
    reset_peak_gpu_memory(gpu_index(device_));
  } else {
    std::ofstream("/proc/self/clear_refs") << "5";
  }
}

std::string MemoryMonitor::capacity_line() const {
  return fmt::format("{} capacity: {} with {:.2f}GiB memory", device_.is_cuda() ? "CUDA" : "CPU", device_name_,
                     static_cast<double>(capacity_) / kGib);
}

}  // namespace titanium::train
