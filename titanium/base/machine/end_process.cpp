#include "titanium/base/machine/end_process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <iostream>

namespace titanium {
namespace {

bool somebody_waits_for_the_end() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  const std::initializer_list<const char*> tools = {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"};
  return std::ranges::any_of(tools, [](const char* name) { return std::getenv(name) != nullptr; });
#endif
}

}  // namespace

void end_process(int code) {
  if (somebody_waits_for_the_end()) std::exit(code);
  std::cout.flush();  // which has its own buffer where it is not synchronised with stdio
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace titanium
