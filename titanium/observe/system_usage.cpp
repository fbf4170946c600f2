#include "titanium/observe/system_usage.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <sstream>

namespace titanium::observe {
namespace {

// "Name:  123 kB" lines, in MB.
std::map<std::string, double> read_sizes(const char* path) {
  std::map<std::string, double> sizes;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double value = 0;
    if (words >> name >> value && !name.empty()) sizes[name.substr(0, name.size() - 1)] = value;
  }
  return sizes;
}

// What NVML says of the shares of time, in percent.
struct Utilization {
  unsigned gpu, memory;
};
constexpr int kSensorOfGpu = 0;

}  // namespace

SystemUsage::SystemUsage(const char* nvml_library)
    : processor_(read_processor()), traffic_(read_traffic()), nvml_(nvml_library) {}

SystemUsage::Processor SystemUsage::read_processor() {
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  Processor sums;
  double value = 0;
  for (int column = 0; column < 8 && file >> value; ++column) {
    const bool idle = column == 3 || column == 4;  // idle and waiting for disks
    sums.total += value;
    if (!idle) sums.busy += value;
  }
  return sums;
}

SystemUsage::Traffic SystemUsage::read_traffic() {
  std::ifstream file("/proc/net/dev");
  Traffic sums;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream columns(line.substr(colon + 1));
    double value = 0;
    for (int column = 0; column < 9 && columns >> value; ++column) {
      if (column == 0) sums.received += value;
      if (column == 8) sums.sent += value;
    }
  }
  return sums;
}

void SystemUsage::add_gpus(std::vector<Scalar>& values) const {
  unsigned count = 0;
  if (!nvml_.ready() || !nvml_.ask("nvmlDeviceGetCount_v2", &count)) return;
  for (unsigned index = 0; index < count; ++index) {
    Nvml::Device device = nullptr;
    if (!nvml_.ask("nvmlDeviceGetHandleByIndex_v2", index, &device)) continue;
    const auto add = [&](const char* name, double value) {
      values.push_back({fmt::format("gpu.{}.{}", index, name), value});
    };
    if (Utilization busy{}; nvml_.ask("nvmlDeviceGetUtilizationRates", device, &busy)) {
      add("gpu", busy.gpu);
      add("memory", busy.memory);
    }
    if (NvmlMemory memory{}; nvml_.ask("nvmlDeviceGetMemoryInfo", device, &memory) && memory.total > 0) {
      add("memoryAllocated", 100 * static_cast<double>(memory.used) / static_cast<double>(memory.total));
      add("memoryAllocatedBytes", static_cast<double>(memory.used));
    }
    if (unsigned celsius = 0; nvml_.ask("nvmlDeviceGetTemperature", device, kSensorOfGpu, &celsius))
      add("temp", celsius);
    unsigned power = 0, limit = 0;  // milliwatts
    if (!nvml_.ask("nvmlDeviceGetPowerUsage", device, &power)) continue;
    add("powerWatts", power / 1000.0);
    if (!nvml_.ask("nvmlDeviceGetEnforcedPowerLimit", device, &limit) || limit == 0) continue;
    add("enforcedPowerLimitWatts", limit / 1000.0);
    add("powerPercent", 100.0 * power / limit);
  }
}

std::vector<Scalar> SystemUsage::sample() {
  std::vector<Scalar> values;
  const Processor processor = read_processor();
  if (processor.total > processor_.total) {
    values.push_back({"cpu", 100 * (processor.busy - processor_.busy) / (processor.total - processor_.total)});
  }
  const auto machine = read_sizes("/proc/meminfo");
  const auto process = read_sizes("/proc/self/status");
  if (machine.contains("MemTotal") && machine.contains("MemAvailable")) {
    const double total = machine.at("MemTotal"), available = machine.at("MemAvailable");
    values.push_back({"memory_percent", 100 * (total - available) / total});
    values.push_back({"proc.memory.availableMB", available / 1024});
    if (process.contains("VmRSS")) {
      values.push_back({"proc.memory.rssMB", process.at("VmRSS") / 1024});
      values.push_back({"proc.memory.percent", 100 * process.at("VmRSS") / total});
    }
  }
  if (process.contains("Threads")) values.push_back({"proc.cpu.threads", process.at("Threads")});
  const Traffic traffic = read_traffic();
  values.push_back({"network.recv", traffic.received - traffic_.received});
  values.push_back({"network.sent", traffic.sent - traffic_.sent});
  add_gpus(values);
  processor_ = processor;
  return values;
}

}  // namespace titanium::observe
