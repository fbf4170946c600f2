// Maps of matrices, with which tensor cores' operands and results are copied box by box between device and shared
// memory (compute capability 9.0).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace titanium::kernels {

// Contiguous matrices [matrices, rows, columns] in device memory, and how much of them a copy moves.
struct MappedMatrices {
  const void* data;
  int64_t matrices;
  int64_t rows;
  int64_t columns;
  int element_bytes;  // 1 or 2
  int box_rows;
  int box_columns;
};

// Whether the driver can make maps.
bool can_map_matrices();
// Throws Error if the driver refuses. The map of matrices without elements is empty: nothing of them is ever copied.
CUtensorMap map_matrices(const MappedMatrices& mapped);

}  // namespace titanium::kernels
