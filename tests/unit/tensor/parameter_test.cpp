#include "titanium/tensor/parameter.h"

#include <ATen/ops/arange.h>

namespace titanium {
namespace {

// The numbers of the shard's elements in their order, as element_numbers describes them.
std::vector<int64_t> numbers_of(const Parameter& parameter) {
  std::vector<int64_t> numbers;
  for (const ElementNumbers& matrix : element_numbers(parameter)) {
    EXPECT_EQ(matrix.begin, static_cast<int64_t>(numbers.size()));
    for (int64_t row = 0; row < matrix.rows; ++row) {
      for (int64_t column = 0; column < matrix.columns; ++column) {
        numbers.push_back(matrix.first + row * matrix.row_stride + column);
      }
    }
  }
  return numbers;
}

// The same from a tensor that holds the number of each of its elements.
std::vector<int64_t> expected_numbers(const Parameter& parameter) {
  const Tensor whole = at::arange(volume(parameter.global_shape)).view(parameter.global_shape);
  const Tensor mine = box_of(whole, parameter.shard).contiguous();
  return {mine.const_data_ptr<int64_t>(), mine.const_data_ptr<int64_t>() + mine.numel()};
}

TEST(ElementNumbers, AreThoseOfTheWholeParameterForAnyDimsAndCuts) {
  const std::vector<std::pair<Shape, Box>> cases = {
      {{7}, {{2}, {3}}},
      {{6, 5}, {{0, 0}, {6, 5}}},
      {{6, 5}, {{2, 0}, {3, 5}}},
      {{6, 5}, {{2, 1}, {3, 2}}},
      {{4, 6, 5}, {{1, 0, 0}, {2, 6, 5}}},  // experts
      {{4, 6, 5}, {{1, 2, 0}, {2, 3, 5}}},  // and their rows
      {{4, 6, 5}, {{1, 0, 3}, {2, 6, 2}}},  // or columns
      {{4, 6, 5}, {{1, 2, 3}, {2, 3, 2}}},  // or both
      {{3, 4, 6, 5}, {{1, 1, 2, 3}, {2, 2, 3, 2}}},
      {{3, 4, 6, 5}, {{0, 1, 0, 0}, {3, 2, 6, 5}}},
      {{4, 6, 5}, {{4, 0, 0}, {0, 6, 5}}},  // nothing
      {{}, {{}, {}}},
  };
  for (const auto& [shape, shard] : cases) {
    Parameter parameter("a", shape);
    parameter.shard = shard;
    EXPECT_EQ(numbers_of(parameter), expected_numbers(parameter)) << ::testing::PrintToString(shard.offset);
  }
}

TEST(ElementNumbers, OneMatrixIsEnoughUnlessTwoInnerDimsAreCut) {
  Parameter experts("a", {4, 6, 5});
  experts.shard = {{1, 2, 0}, {2, 3, 5}};
  EXPECT_EQ(element_numbers(experts).size(), 1U);
  experts.shard = {{1, 0, 3}, {2, 6, 2}};
  EXPECT_EQ(element_numbers(experts).size(), 1U);
  experts.shard = {{1, 2, 3}, {2, 3, 2}};
  EXPECT_EQ(element_numbers(experts).size(), 2U);
}

}  // namespace
}  // namespace titanium
