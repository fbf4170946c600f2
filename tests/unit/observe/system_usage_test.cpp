#include "titanium/observe/system_usage.h"

#include <filesystem>
#include <map>

#include "gtest/gtest.h"

namespace titanium::observe {
namespace {

std::map<std::string, double> sample(const std::string& library) {
  std::map<std::string, double> values;
  for (const Scalar& scalar : SystemUsage(library.c_str()).sample()) values[scalar.tag] = scalar.value;
  return values;
}

TEST(SystemUsage, TellsWhatTheDriverSaysOfEveryGpu) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const auto values = sample((program.parent_path() / "libnvml_stand_in.so").string());
  EXPECT_EQ(values.at("gpu.0.gpu"), 97);
  EXPECT_EQ(values.at("gpu.0.memory"), 41);
  EXPECT_EQ(values.at("gpu.0.memoryAllocated"), 25);
  EXPECT_EQ(values.at("gpu.0.memoryAllocatedBytes"), 250);
  EXPECT_EQ(values.at("gpu.0.temp"), 63);
  EXPECT_EQ(values.at("gpu.0.powerWatts"), 525);
  EXPECT_EQ(values.at("gpu.0.enforcedPowerLimitWatts"), 700);
  EXPECT_EQ(values.at("gpu.0.powerPercent"), 75);
  EXPECT_EQ(values.at("gpu.1.memoryAllocated"), 50);
  EXPECT_FALSE(values.contains("gpu.1.powerWatts"));  // the driver does not say
  EXPECT_FALSE(values.contains("gpu.2.gpu"));
  EXPECT_GT(values.at("proc.memory.rssMB"), 1);
}

TEST(SystemUsage, AMachineWithoutADriverHasNoGpus) {
  for (const auto& [name, value] : sample("/no/such/library.so")) EXPECT_FALSE(name.starts_with("gpu.")) << name;
}

}  // namespace
}  // namespace titanium::observe
