// How the kernels of the RMS norm cut their work.
//
// A row is treated by a group of threads: by part of a warp or by a whole block, with a few 128-bit words per thread in
// registers, so that each input is read once. Rows that are longer or not aligned take plain kernels that read twice.
#pragma once

#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/magnitude.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/rms_norm.h"

namespace titanium::kernels::rms {

constexpr int kPlainThreads = 256;
constexpr int kPlainBlocks = 2;  // per multiprocessor

// kGroup threads treat a row, each with kHeld words of it; kThreads are in a block.
template <int kGroupThreads, int kHeldWords, int kBlockThreads>
struct Cut {
  static constexpr int kGroup = kGroupThreads, kHeld = kHeldWords, kThreads = kBlockThreads;
  static constexpr int kRows = kThreads / kGroup;  // of a block at a time
};

// Calls `call` with the first of the cuts that holds a row of `words`; false if none does.
template <typename... Cuts, typename Call>
bool with_cut(int64_t words, const Call& call) {
  const auto fits = [&](auto cut) {
    if (words > cut.kGroup * cut.kHeld) return false;
    call(cut);
    return true;
  };
  return (fits(Cuts{}) || ...);
}

// One place for the product, so that forward and apply give the same bits.
__device__ inline float normalised(float x, float rstd, float weight) { return x * rstd * weight; }

}  // namespace titanium::kernels::rms
