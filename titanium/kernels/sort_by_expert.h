// A stable counting sort: choices of tokens (numbered t * K + k) become rows that lie together by expert, and inside an
// expert in the order of the choices.
#pragma once

#include <cstdint>

#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// Pointers are device memory; work is queued on `stream` and nothing synchronises. Up to 2^31 - 1 choices and
// kMostSortedExperts experts. Integers without atomics: the result is a function of the input alone.
constexpr int64_t kMostSortedExperts = 512;
struct SortByExpertArgs {
  const int32_t* experts;  // [choices], each in [0, num_experts)
  int32_t* row_of_choice;  // [choices]
  int32_t* choice_of_row;  // [choices]
  int32_t* ends;           // [num_experts]: where the rows of each expert end and those of the next begin
  int64_t choices;         // none is allowed: then all ends are 0
  int64_t num_experts;
  int32_t* scratch;  // of sort_by_expert_scratch_bytes(choices, num_experts)
};
void sort_by_expert(const SortByExpertArgs& args, GpuStream stream);
int64_t sort_by_expert_scratch_bytes(int64_t choices, int64_t num_experts);

}  // namespace titanium::kernels
