#include "titanium/optim/matrix_exchange.h"

#include "titanium/base/error.h"

namespace titanium::optim {

int64_t matrix_rows(const Box& matrix) { return matrix.shape[matrix.shape.size() - 2]; }

int64_t matrix_columns(const Box& matrix) { return matrix.shape.back(); }

std::vector<Box> matrices_of(const Parameter& parameter) {
  const Shape& shape = parameter.global_shape;
  TI_ASSERT(shape.size() >= 2, "{} has no matrices", parameter.fqn);
  const size_t leading = shape.size() - 2;
  Box box{Shape(shape.size(), 0), Shape(shape.size(), 1)};
  box.shape[leading] = shape[leading];
  box.shape[leading + 1] = shape[leading + 1];
  int64_t count = 1;
  for (size_t dim = 0; dim < leading; ++dim) count *= shape[dim];
  std::vector<Box> matrices;
  for (int64_t number = 0; number < count; ++number) {
    int64_t rest = number;
    for (size_t dim = leading; dim-- > 0; rest /= shape[dim]) box.offset[dim] = rest % shape[dim];
    matrices.push_back(box);
  }
  return matrices;
}

void WholeMatrices::run(const std::vector<Parameter*>& parameters, const MatrixWork& work) {
  for (Parameter* parameter : parameters) {
    for (const Box& matrix : matrices_of(*parameter)) {
      const Tensor input = work.read(*parameter, matrix).reshape({matrix_rows(matrix), matrix_columns(matrix)});
      work.write(*parameter, matrix, work.compute(input).reshape(matrix.shape));
    }
  }
}

}  // namespace titanium::optim
