#include "titanium/base/machine/end_process.h"

#include <cstdio>
#include <cstdlib>

namespace titanium {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* kWithoutTools = "^written, destroyed$";  // leaks are looked for at the end
#else
constexpr const char* kWithoutTools = "^written$";
#endif

// Says when it is destroyed, if it is told to.
struct StaticObject {
  ~StaticObject() {
    if (speaks) std::fputs(", destroyed", stderr);
  }
  bool speaks = false;
} static_object;

[[noreturn]] void write_and_end(const char* tool) {
  for (const char* name : {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) ::unsetenv(name);
  if (tool != nullptr) ::setenv(tool, "tool.so", /*overwrite=*/1);
  std::setvbuf(stderr, nullptr, _IOFBF, BUFSIZ);
  static_object.speaks = true;
  std::fputs("written", stderr);
  end_process(7);
}

TEST(EndProcess, WritesWhatIsBufferedAndDestroysNothing) {
  EXPECT_EXIT(write_and_end(nullptr), ::testing::ExitedWithCode(7), kWithoutTools);
}

TEST(EndProcess, ToolsInsideTheProcessSeeAnOrdinaryExit) {
  for (const char* tool : {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    EXPECT_EXIT(write_and_end(tool), ::testing::ExitedWithCode(7), "^written, destroyed$") << tool;
  }
}

}  // namespace
}  // namespace titanium
