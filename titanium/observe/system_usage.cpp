#include "titanium/observe/system_usage.h"

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

}  // namespace

SystemUsage::SystemUsage() : processor_(read_processor()), traffic_(read_traffic()) {}

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
  processor_ = processor;
  return values;
}

}  // namespace titanium::observe
