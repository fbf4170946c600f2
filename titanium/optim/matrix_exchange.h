// How matrices that are cut over ranks become whole on the rank that computes with them.
#pragma once

#include <functional>

#include "titanium/tensor/parameter.h"

namespace titanium::optim {

// The matrices of a parameter, as boxes of its global tensor: one of [rows, columns], E of [E, rows, columns].
std::vector<Box> matrices_of(const Parameter& parameter);
int64_t matrix_rows(const Box& matrix);
int64_t matrix_columns(const Box& matrix);

// What is done with each matrix. Boxes are those of the global tensor.
struct MatrixWork {
  Dtype dtype = at::kFloat;  // what `read` and `compute` return
  // What this rank has of the input: a box inside its shard. May be called in any order, once for each element.
  std::function<Tensor(const Parameter&, const Box&)> read;
  // Takes a whole matrix [rows, columns] and gives one of the same shape.
  std::function<Tensor(const Tensor&)> compute;
  // A box of the result, inside this rank's shard.
  std::function<void(Parameter&, const Box&, const Tensor&)> write;
};

class MatrixExchange {
 public:
  virtual ~MatrixExchange() = default;
  // Does the work for every matrix of these parameters, each on one rank. All ranks that share them name the same ones.
  virtual void run(const std::vector<Parameter*>& parameters, const MatrixWork& work) = 0;
  // Elements of all its buffers at a time.
  virtual int64_t buffer_elements() const = 0;
};

// For one rank that holds all of every matrix.
class WholeMatrices : public MatrixExchange {
 public:
  void run(const std::vector<Parameter*>& parameters, const MatrixWork& work) override;
  int64_t buffer_elements() const override { return 0; }
};

}  // namespace titanium::optim
