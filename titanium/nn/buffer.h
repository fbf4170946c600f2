// A named tensor of a module that is no parameter: a table, a count, a bias that the model itself moves.
#pragma once

#include <string>

#include "titanium/tensor/tensor.h"

namespace titanium::nn {

// It has no gradient and no optimizer updates it. Every rank that has the module holds all of it; whoever changes it
// does so alike on all of them. It keeps its own dtype, whatever that of the parameters is.
class Buffer {
 public:
  // Describes the buffer; `materialize` allocates it, filled with zeros.
  Buffer(std::string fqn, Shape shape, Dtype dtype, bool is_persistent);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void materialize(Device device);

  std::string fqn;
  Shape shape;
  Dtype dtype;
  bool is_persistent;  // checkpoints hold it; what is not persistent is computed anew
  Tensor value;
};

}  // namespace titanium::nn
