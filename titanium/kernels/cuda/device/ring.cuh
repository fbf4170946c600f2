// Words that travel from memory to shared memory while a thread does something else.
//
// Every thread has slots of its own, so nothing has to be agreed with others: it asks for words, closes the batch, and
// later waits until all but the last few batches have come. A slot is filled again only after it was read. Where words
// cannot travel by themselves (before compute capability 8.0, and on other GPUs) they are there when `ask` returns.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {

// Slots of kThreads threads, in dynamic shared memory: those of one number lie beside each other.
template <int kThreads>
class Ring {
 public:
  explicit __device__ Ring(void* shared) : slots_(static_cast<uint4*>(shared) + threadIdx.x) {}

  static constexpr int64_t bytes(int64_t slots) { return slots * kThreads * static_cast<int64_t>(sizeof(uint4)); }

  // `from` is 16-byte aligned.
  __device__ void ask(int slot, const void* from) const {
#if __CUDA_ARCH__ >= 800
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(slots_ + slot * kThreads));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
    slots_[slot * kThreads] = *static_cast<const uint4*>(from);
#endif
  }
  __device__ static void close_batch() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  // Until no more than the last kBatches batches are under way.
  template <int kBatches>
  __device__ static void wait_for_all_but() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kBatches) : "memory");
#endif
  }

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
