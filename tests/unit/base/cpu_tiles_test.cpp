#include "titanium/base/machine/cpu_tiles.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace titanium {
namespace {

TEST(CpuTiles, AreHiddenWhereTheirLeafIsMissing) {
  const auto machine = [](const std::string& level, const std::string& flags) {
    return "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\ncpuid level\t: " + level + "\nflags\t\t: fpu " +
           flags + " clwb\nvmx flags\t: vnmi\n\nprocessor\t: 1\ncpuid level\t: " + level + "\n";
  };
  EXPECT_TRUE(hides_amx_tiles(machine("28", "amx_bf16 avx512_fp16 amx_tile amx_int8")));
  EXPECT_FALSE(hides_amx_tiles(machine("29", "amx_bf16 avx512_fp16 amx_tile amx_int8")));
  EXPECT_FALSE(hides_amx_tiles(machine("32", "amx_bf16 avx512_fp16 amx_tile amx_int8")));
  EXPECT_FALSE(hides_amx_tiles(machine("16", "avx2")));
  EXPECT_FALSE(hides_amx_tiles("processor\t: 0\nFeatures\t: fp asimd\n"));
  EXPECT_FALSE(hides_amx_tiles("flags\t\t: fpu amx_tile"));  // no level is no evidence
  EXPECT_FALSE(hides_amx_tiles(""));
}

TEST(CpuTiles, TheUsersChoiceStays) {
  const char* before = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  avoid_hidden_amx_tiles();
  EXPECT_STREQ(std::getenv("ONEDNN_MAX_CPU_ISA"), "AVX2");
  kept.empty() ? ::unsetenv("ONEDNN_MAX_CPU_ISA") : ::setenv("ONEDNN_MAX_CPU_ISA", kept.c_str(), 1);
}

}  // namespace
}  // namespace titanium
