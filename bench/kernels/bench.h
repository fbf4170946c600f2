// What the benchmarks of kernels share: buffers, timing, and the rate at which this GPU copies memory, measured in the
// same run. A kernel here does little but move memory, so the mark is 85 % of the copy rate. Times are medians over
// samples of several launches each. Launches take turns between sets of buffers that together are far larger than the
// L2 cache.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/fill_normal.h"

namespace titanium::kernels {

// Llama 3 8B.
constexpr int64_t kDim = 4096, kHidden = 14336, kVocabulary = 128256, kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr double kMark = 0.85;
constexpr auto kBf16 = ElementType::kBFloat16;
constexpr auto kFp32 = ElementType::kFloat32;

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Device memory that is given out once and taken back all at once.
class Arena {
 public:
  explicit Arena(int64_t bytes) : size_(bytes) { check(cudaMalloc(&base_, bytes), "allocating the buffers"); }
  ~Arena() { cudaFree(base_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* take(int64_t bytes) {
    void* at = static_cast<char*>(base_) + used_;
    used_ += (bytes + 255) / 256 * 256;
    if (used_ > size_) check(cudaErrorMemoryAllocation, "a benchmark needs more than the arena has");
    return at;
  }
  void reset() { used_ = 0; }

 private:
  void* base_ = nullptr;
  int64_t size_ = 0, used_ = 0;
};

class Bench {
 public:
  Bench(Arena& arena, std::string filter) : arena_(arena), filter_(std::move(filter)) {
    check(cudaEventCreate(&begin_), "event");
    check(cudaEventCreate(&end_), "event");
  }
  ~Bench() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void measure_copy() {
    constexpr int64_t kBytes = int64_t{1} << 30;
    arena_.reset();
    void* from = random(kBytes / 2, kBf16);
    void* to = arena_.take(kBytes);
    const double us = median_us([&](int) { cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, nullptr); }, 1);
    copy_rate_ = 2.0 * kBytes / us * 1e-3;
    std::printf("%-52s %9s %10s %8s %7s\n", "kernel", "MB moved", "us", "GB/s", "of copy");
    std::printf("%-52s %9.1f %10.1f %8.0f %6.1f%%\n", "cudaMemcpyAsync, 1 GiB on the device", 2.0 * kBytes * 1e-6, us,
                copy_rate_, 100.0);
  }

  // One benchmark: `prepare` makes one set of buffers and returns what launches the kernel on it. `bytes` is what the
  // kernel cannot avoid to move.
  void run(const std::string& name, int64_t bytes, const std::function<std::function<void()>()>& prepare) {
    if (name.find(filter_) == std::string::npos) return;
    arena_.reset();
    constexpr int64_t kBeyondCache = 256 << 20;
    const int sets = static_cast<int>(std::clamp<int64_t>(2 * kBeyondCache / std::max<int64_t>(bytes, 1), 1, 64));
    std::vector<std::function<void()>> launches;
    for (int i = 0; i < sets; ++i) launches.push_back(prepare());
    const double us = median_us([&](int i) { launches[i % sets](); }, sets);
    const double rate = static_cast<double>(bytes) / us * 1e-3, part = rate / copy_rate_;
    std::printf("%-52s %9.1f %10.1f %8.0f %6.1f%%%s\n", name.c_str(), static_cast<double>(bytes) * 1e-6, us, rate,
                100 * part, part >= kMark ? "" : "  below the mark");
    std::fflush(stdout);
    below_ += part < kMark ? 1 : 0;
  }

  void* random(int64_t elements, ElementType type, double std = 1) {
    void* out = arena_.take(elements * element_size(type));
    fill_normal_on_gpu({out, type == kBf16, 1, elements, 0, 0, ++key_, truncated_normal(std, 8 * std)}, nullptr);
    return out;
  }
  void* room(int64_t bytes) {
    void* out = arena_.take(bytes);
    check(cudaMemset(out, 0, bytes), "memset");
    return out;
  }
  template <typename T>
  T* upload(const std::vector<T>& values) {
    void* out = arena_.take(static_cast<int64_t>(values.size() * sizeof(T)));
    check(cudaMemcpy(out, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
    return static_cast<T*>(out);
  }
  int below() const { return below_; }

 private:
  double median_us(const std::function<void(int)>& launch, int sets) {
    constexpr int kSamples = 25;
    int next = 0;
    const auto sample_us = [&](int launches) {
      cudaEventRecord(begin_, nullptr);
      for (int i = 0; i < launches; ++i) launch(next++);
      cudaEventRecord(end_, nullptr);
      check(cudaEventSynchronize(end_), "running a kernel");
      check(cudaGetLastError(), "launching a kernel");
      float milliseconds = 0;
      cudaEventElapsedTime(&milliseconds, begin_, end_);
      return 1e3 * milliseconds / launches;
    };
    sample_us(std::max(3, sets));  // loads the kernel and warms up
    const int launches = static_cast<int>(std::clamp(1000 / sample_us(std::max(3, sets)), 1.0, 200.0));
    std::vector<double> samples(kSamples);
    for (double& sample : samples) sample = sample_us(launches);
    std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
    return samples[kSamples / 2];
  }

  Arena& arena_;
  std::string filter_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  double copy_rate_ = 1;
  uint64_t key_ = 0;
  int below_ = 0;
};

inline std::string shape(const std::string& name, int64_t rows, int64_t columns) {
  return name + ", " + std::to_string(rows) + " x " + std::to_string(columns);
}

// The main program: runs all benchmarks whose names contain the argument.
inline int run_benchmarks(int argc, char** argv, void (*run_all)(Bench&)) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "no GPU");
  std::printf("%s, %d multiprocessors, L2 %d MiB\n", properties.name, properties.multiProcessorCount,
              properties.l2CacheSize >> 20);
  Arena arena(int64_t{40} << 30);
  Bench bench(arena, argc > 1 ? argv[1] : "");
  bench.measure_copy();
  run_all(bench);
  std::printf("%d below the mark of %.0f %% of the copy rate\n", bench.below(), 100 * kMark);
  return 0;
}

}  // namespace titanium::kernels
