// Asynchronous copies of boxes into shared memory, the barriers that count their bytes, and products of warp groups on
// them (compute capability 9.0; elsewhere nothing of this may be called).
//
// Note [Boxes in shared memory]
// A box is 128 bytes, 64 elements of bfloat16 or 128 of e4m3, along the contiguous dim times any number of rows along
// the other. It lies in shared memory row by row, the 16-byte words of a row permuted by its number (the 128-byte
// swizzle), from an address that is a multiple of 1024 on. A product reads it in either direction: "along" where the
// contiguous dim is the one that is summed over, "across" where it is not.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace titanium::kernels::tensor_core {

constexpr int kBoxRowBytes = 128;

__device__ inline unsigned shared_address(const void* place) {
  return static_cast<unsigned>(__cvta_generic_to_shared(place));
}

// --- Barriers in shared memory: a phase ends when all arrivals and all announced bytes have come. ---

__device__ inline void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// After the last init: copies and other blocks of the cluster see the barriers.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void arrive_expecting(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// At the same barrier of block `rank` of the cluster.
__device__ inline void arrive_at(uint64_t* barrier, unsigned rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
__device__ inline void wait_for_phase(uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ended;\n"
      "bra again;\n"
      "ended:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// --- Copies. Coordinates: column, row, matrix. What lies outside the tensor arrives as zeros. ---

__device__ inline void copy_box(void* to, const CUtensorMap& map, int column, int row, int matrix, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(matrix)
      : "memory");
}
// To the same place in the blocks of the cluster whose bits are set; each one's barrier counts.
__device__ inline void copy_box_to(uint16_t blocks, void* to, const CUtensorMap& map, int column, int row, int matrix,
                                   uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(matrix), "h"(blocks)
      : "memory");
}
// Ordinary stores to shared memory are seen by products that follow.
__device__ inline void fence_shared_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A box of shared memory to a tensor; what lies outside the tensor is left out. Copies are counted in batches.
__device__ inline void copy_box_out(const CUtensorMap& map, int column, int row, int matrix, const void* from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row), "r"(matrix)
               : "memory");
}
__device__ inline void close_copies_out() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the last kBatches have been read from shared memory.
template <int kBatches>
__device__ void wait_until_read_all_but() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBatches) : "memory");
}
// Four 8 x 8 matrices from the registers in which products leave their results; lane i says where row i % 8 of matrix
// i / 8 lies.
__device__ inline void store_matrices(void* row, const uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// --- Products ---

enum class Reads { kAlong, kAcross };
enum class Element { kBFloat16, kE4m3 };

// An operand in shared memory: where boxes begin that are `box_bytes` apart.
template <Reads kReads>
__device__ uint64_t operand(const void* place, int box_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = 8 * kBoxRowBytes;
  const uint64_t address = (shared_address(place) & 0x3FFFF) >> 4;
  const uint64_t leading = kReads == Reads::kAcross ? static_cast<uint64_t>(box_bytes) >> 4 : 1;
  return address | leading << 16 | (kEightRows >> 4) << 32 | kSwizzle128;
}
// What the address field grows by for the next 16 elements of bfloat16, or 32 of e4m3, that are summed over.
template <Reads kReads>
constexpr uint64_t kNextStep = kReads == Reads::kAlong ? 2 : 16 * kBoxRowBytes >> 4;

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kGroups>
__device__ void wait_for_all_products_but() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// The compiler must not move uses of the sums across this.
template <int N>
__device__ void hold(float (&sums)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

#define TI_SUMS_8(s, i)                                                                                       \
  "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), \
      "+f"(s[i + 7])
#define TI_SUMS_32(s, i) TI_SUMS_8(s, i), TI_SUMS_8(s, i + 8), TI_SUMS_8(s, i + 16), TI_SUMS_8(s, i + 24)

#define TI_PLACES_32                                                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define TI_PLACES_128                                                                                              \
  TI_PLACES_32                                                                                                     \
  ", "                                                                                                             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
  "%54, %55, "                                                                                                     \
  "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, " \
  "%78, %79, "                                                                                                     \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, "     \
  "%101, %102, %103, "                                                                                             \
  "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, "   \
  "%122, %123, %124, %125, %126, %127"

// Sums of 64 x 256 over 32 bytes of each line, 16 elements of bfloat16 or 32 of e4m3: a thread has of row 16 * warp +
// lane / 4 (+ 8) columns 8 g + 2 (lane % 4) and the next, in sums[4 g + 0..1] (+ 2..3). Float8 is read along only.
template <Element kElement, Reads kA, Reads kB>
__device__ void multiply_256(float (&sums)[128], uint64_t a, uint64_t b) {
  if constexpr (kElement == Element::kE4m3) {
    static_assert(kA == Reads::kAlong && kB == Reads::kAlong);
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" TI_PLACES_128 "}, %128, %129, 1, 1, 1;"
                 : TI_SUMS_32(sums, 0), TI_SUMS_32(sums, 32), TI_SUMS_32(sums, 64), TI_SUMS_32(sums, 96)
                 : "l"(a), "l"(b));
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" TI_PLACES_128
                 "}, %128, %129, 1, 1, 1, %130, %131;"
                 : TI_SUMS_32(sums, 0), TI_SUMS_32(sums, 32), TI_SUMS_32(sums, 64), TI_SUMS_32(sums, 96)
                 : "l"(a), "l"(b), "n"(kA == Reads::kAcross), "n"(kB == Reads::kAcross));
  }
}
// Sums of 64 x 64, the same way, in sums[first + 4 g ...].
template <Element kElement, Reads kA, Reads kB, int kFirst, int N>
__device__ void multiply_64(float (&sums)[N], uint64_t a, uint64_t b) {
  if constexpr (kElement == Element::kE4m3) {
    static_assert(kA == Reads::kAlong && kB == Reads::kAlong);
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" TI_PLACES_32 "}, %32, %33, 1, 1, 1;"
                 : TI_SUMS_32(sums, kFirst)
                 : "l"(a), "l"(b));
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TI_PLACES_32 "}, %32, %33, 1, 1, 1, %34, %35;"
                 : TI_SUMS_32(sums, kFirst)
                 : "l"(a), "l"(b), "n"(kA == Reads::kAcross), "n"(kB == Reads::kAcross));
  }
}

#undef TI_PLACES_128
#undef TI_PLACES_32
#undef TI_SUMS_32
#undef TI_SUMS_8

// More registers for the warp groups that multiply, fewer for the one that copies.
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace titanium::kernels::tensor_core
