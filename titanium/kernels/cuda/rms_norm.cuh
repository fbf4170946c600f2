// How the kernels of the RMS norm cut their work.
//
// A row is treated by a group of threads: by part of a warp or by a whole block, with kHeld 128-bit words per thread in
// registers, so that each input is read once. Rows that are longer or not aligned take plain kernels that read twice.
#pragma once

#include "titanium/kernels/cuda/launch.cuh"
#include "titanium/kernels/cuda/magnitude.cuh"
#include "titanium/kernels/cuda/reduce.cuh"
#include "titanium/kernels/cuda/vector.cuh"
#include "titanium/kernels/rms_norm.h"

namespace titanium::kernels::rms {

constexpr int kHeld = 2;
constexpr int kPlainThreads = 256;
constexpr int kPlainBlocks = 3;  // per multiprocessor

// Threads of a block whose rows are treated by groups of `group` threads.
constexpr int block_threads(int group) { return group <= 32 ? 256 : group; }

template <int kGroup>
struct Group {
  static constexpr int kValue = kGroup;
};
// Calls `call` with the smallest group that holds a row of `dim`; false if none does.
template <typename T, typename Call>
bool with_group(int64_t dim, const Call& call) {
  const int64_t words = dim / kVectorSize<T> / kHeld + (dim / kVectorSize<T> % kHeld != 0);
  if (words <= 16) {
    call(Group<16>{});
  } else if (words <= 32) {
    call(Group<32>{});
  } else if (words <= 128) {
    call(Group<128>{});
  } else if (words <= 256) {
    call(Group<256>{});
  } else if (words <= 512) {
    call(Group<512>{});
  } else if (words <= 1024) {
    call(Group<1024>{});
  } else {
    return false;
  }
  return true;
}

// One place for the product, so that forward and apply give the same bits.
__device__ inline float normalised(float x, float rstd, float weight) { return x * rstd * weight; }

}  // namespace titanium::kernels::rms
