// Words that travel from memory to shared memory while a thread does something else.
//
// A thread asks for words, closes the batch, and later waits until all but the last few batches have come. It sees what
// it has asked for itself; others see it after a barrier. Where words cannot travel by themselves (before compute
// capability 8.0, and on other GPUs) they are there when `ask_word` returns.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {

// `from` is 16-byte aligned. Zeros arrive where nothing is `there`, and `from` is not read.
__device__ inline void ask_word(uint4* to, const void* from, bool there = true) {
#if __CUDA_ARCH__ >= 800
  const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
  *to = there ? *static_cast<const uint4*>(from) : uint4{};
#endif
}
__device__ inline void close_batch() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until no more than the last kBatches batches are under way.
template <int kBatches>
__device__ void wait_for_all_but() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kBatches) : "memory");
#endif
}

// Slots of kThreads threads, in dynamic shared memory: those of one number lie beside each other. Every thread has
// slots of its own, so nothing has to be agreed with others; a slot is filled again only after it was read.
template <int kThreads>
class Ring {
 public:
  explicit __device__ Ring(void* shared) : slots_(static_cast<uint4*>(shared) + threadIdx.x) {}

  static constexpr int64_t bytes(int64_t slots) { return slots * kThreads * static_cast<int64_t>(sizeof(uint4)); }

  __device__ void ask(int slot, const void* from) const { ask_word(slots_ + slot * kThreads, from); }

  template <typename T>
  __device__ Raw<T, kVectorSize<T>> read(int slot) const {
    Raw<T, kVectorSize<T>> raw;
    raw.words[0] = slots_[slot * kThreads];
    return raw;
  }

 private:
  uint4* slots_;
};

}  // namespace titanium::kernels
