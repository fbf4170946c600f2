#include "titanium/kernels/tensor_list.h"

#include <gtest/gtest.h>

#include "titanium/kernels/copy_tensors.h"
#include "titanium/kernels/sum_of_squares.h"

namespace titanium::kernels {
namespace {

TEST(TensorList, ChunksAreNumberedThroughTheListAndEmptyTensorsHaveNone) {
  constexpr int64_t kChunk = SumOfSquaresTensor::kChunkElements;
  SumOfSquaresTensor tensors[] = {
      {.count = 1}, {.count = 0}, {.count = kChunk}, {.count = 2 * kChunk + 1}, {.count = 0}};
  EXPECT_EQ(number_chunks(tensors, 5), 5);
  EXPECT_EQ(tensors[0].first_chunk, 0);
  EXPECT_EQ(tensors[1].first_chunk, 1);
  EXPECT_EQ(tensors[2].first_chunk, 1);
  EXPECT_EQ(tensors[3].first_chunk, 2);
  EXPECT_EQ(tensors[4].first_chunk, 5);
}

TEST(TensorList, RowsCountTogether) {
  CopyTensor tensors[] = {{.rows = 3, .row_elements = CopyTensor::kChunkElements}, {.rows = 0, .row_elements = 7}};
  EXPECT_EQ(number_chunks(tensors, 2), 3);
}

}  // namespace
}  // namespace titanium::kernels
