// Named ranges of a thread's time, for the profiler's traces (train/profiler.h) and for NVIDIA's tools (NVTX).
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace titanium {

// The range is as long as the object lives; ranges of a thread are nested. Someone looks while a step is profiled, or
// all the time when a tool such as Nsight Systems has started the program with NVTX_INJECTION64_PATH; otherwise a range
// costs one load and one branch, and no text is made.
class TraceScope {
 public:
  // A part is a piece of the model: what is recorded for the backward inside of it belongs to it.
  enum class Kind { kRange, kPart };

  // The range is called "name detail", or "name" without one.
  explicit TraceScope(std::string_view name, std::string_view detail = {}, Kind kind = Kind::kRange) {
    if (watched_.load(std::memory_order_relaxed)) open(name, detail, kind);
  }
  ~TraceScope() {
    if (range_ != nullptr) close();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  static bool is_watched() { return watched_.load(std::memory_order_relaxed); }
  // The profiler says when it begins and ends to record.
  static void set_profiled(bool profiled);

  // The names of the innermost part and of the innermost range of this thread; empty where there are none or nobody
  // looks.
  struct Place {
    std::string part, range;
  };
  static Place current();

 private:
  struct Range;

  void open(std::string_view name, std::string_view detail, Kind kind);
  void close();

  static std::atomic<bool> watched_;
  static thread_local const Range* innermost_;
  Range* range_ = nullptr;  // owned; null while nothing is recorded
};

}  // namespace titanium
