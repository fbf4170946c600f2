// Stands for a tool such as Nsight Systems: NVTX loads it through NVTX_INJECTION64_PATH, and it writes the ranges of
// the program to the file in NVTX_LISTENER_LOG, "+name" where one begins and "-" where one ends.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

// The part of nvtx3/nvtxDetail/nvtxTypes.h that is used here; the numbers are its interface.
constexpr uint32_t kCallbacks = 1, kCore = 1, kRangePushA = 9, kRangePop = 11;
using FunctionTable = void***;
struct Callbacks {
  size_t struct_size;
  int (*functions)(int module, FunctionTable* table, unsigned* size);
};

std::mutex mutex;

void write(const char* mark, const char* name) {
  static std::FILE* const log = std::fopen(std::getenv("NVTX_LISTENER_LOG"), "w");
  const std::lock_guard lock(mutex);
  std::fprintf(log, "%s%s\n", mark, name);
  std::fflush(log);
}

int push(const char* name) {
  write("+", name);
  return 0;
}

int pop() {
  write("-", "");
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t id)) {
  const auto* callbacks = static_cast<const Callbacks*>(export_table(kCallbacks));
  FunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->functions(kCore, &table, &size) == 0 || size <= kRangePop) return 0;
  *table[kRangePushA] = reinterpret_cast<void*>(push);
  *table[kRangePop] = reinterpret_cast<void*>(pop);
  return 1;
}
