// The order by expert of rows that have come in parts: those of one source after those of another, each part sorted by
// expert. A part stays together, so its place follows from the counts alone.
#pragma once

#include <cstdint>

#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// Pointers are device memory; work is queued on `stream` and nothing synchronises. Fewer than 2^31 rows. Inside an
// expert, rows are in the order in which they have come.
struct OrderPartsArgs {
  const int32_t* counts;    // [sources, experts]: rows of each part
  int32_t* row_of_arrival;  // [rows]
  int32_t* arrival_of_row;  // [rows]; the other way round
  int32_t* ends;            // [experts]: where the rows of each expert end and those of the next begin
  int64_t sources;
  int64_t experts;
};
void order_parts(const OrderPartsArgs& args, GpuStream stream);

}  // namespace titanium::kernels
