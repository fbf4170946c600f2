// Messages between the blocks of a cluster (compute capability 9.0).
//
// A barrier of the cluster, or a store that releases, would wait until all that was written to memory before has
// arrived there. A message of 8 bytes waits for nothing: it is whole or not there, and its receiver knows it by a mark
// inside.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace titanium::kernels {

// Writes to the place of `to` in block `rank` of the cluster.
__device__ inline void tell(unsigned rank, uint64_t* to, uint64_t message) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.relaxed.cluster.shared::cluster.b64 [there], %2;\n"
      "}\n" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "r"(rank), "l"(message)
      : "memory");
#endif
}

// What was written last to a place of this block.
__device__ inline uint64_t hear(const uint64_t* place) { return *static_cast<const volatile uint64_t*>(place); }

// All threads of all blocks: until all have come here.
__device__ inline void meet_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

}  // namespace titanium::kernels
