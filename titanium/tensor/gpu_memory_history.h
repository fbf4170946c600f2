// What the caching allocator of the GPU did, in the format of PyTorch's memory_viz; cuda/ and no_gpu/ hold one
// implementation each.
#pragma once

#include <cstdint>
#include <string>

namespace titanium {

// From now on the last `entries` allocations and frees of all GPUs of this process are remembered; 0: no longer.
// Stacks are not: to find their names takes longer than a step.
void record_gpu_memory_history(int64_t entries);

// The segments that the allocator holds now and the remembered history, as a pickle that
// https://pytorch.org/memory_viz shows. Waits for nothing.
std::string gpu_memory_snapshot();

}  // namespace titanium
