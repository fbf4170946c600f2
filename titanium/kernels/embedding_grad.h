// The gradient of an embedding table: adds the rows of dy to the rows of the table's gradient that the tokens name.
// Only those rows are touched.
//
// Note [Sorted tokens]
// Several tokens may name one row, so their order of summation must be fixed for reproducible results, and no two
// threads may add to one row at once. The caller sorts the tokens, stably (at::sort gives ids and permutation without
// waiting for the device); equal ids are then neighbours. Work is cut into windows of 32 sorted tokens. The window in
// which a run of equal ids begins sums it in fp32 and adds it to the table, also the tokens that are already in the
// next window. Only a long run, which fills the next window altogether, leaves one part per window in the scratch, and
// a second kernel adds these in order. Each row is rounded once per call.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// Pointers are device memory; work is queued on `stream` and nothing synchronises. Any sizes; where dim is a multiple
// of 8 and the arrays are 16-byte aligned, accesses are 128 bits wide.
struct EmbeddingGradArgs {
  ElementType dy_type;
  ElementType dtable_type;
  const void* dy;             // [tokens, dim]
  const int64_t* sorted_ids;  // [tokens], ascending
  const int64_t* order;       // [tokens], sorted_ids[i] is the id of row order[i] of dy
  void* dtable;               // [table_rows, dim], added to
  int64_t first_id;           // of the table's first row; ids outside the table's rows are left out
  int64_t table_rows;
  int64_t tokens;
  int64_t dim;
  float* scratch;  // of embedding_grad_scratch_bytes(tokens, dim), 16-byte aligned
};
void embedding_grad(const EmbeddingGradArgs& args, GpuStream stream);
int64_t embedding_grad_scratch_bytes(int64_t tokens, int64_t dim);

}  // namespace titanium::kernels
