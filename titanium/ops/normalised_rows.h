// What a norm made of x, once more in the backward of the node that begins with the norm: for the gradients of the
// linear layers that take it.
#pragma once

#include <functional>
#include <vector>

#include "titanium/ops/linear/linear_operand.h"
#include "titanium/ops/row_exchange.h"

namespace titanium::ops {

// Note [Normalised rows in the backward]
// The rows are made in the first of these ways that is open:
// - in float8, straight from x, where all layers multiply float8 and the forward has found the largest magnitude;
// - by the backward of the norm, which reads x anyway, where one rank has all rows. The gradients of the weights then
//   come last. Among several ranks they come before, while the gradient of the rows is on its way;
// - before everything else, also where products are computed once more and need them.
class NormalisedRows {
 public:
  struct Args {
    Tensor x_tD;
    Tensor rstd_t1;
    Tensor amax;  // of the rows, if the forward has found it
    Parameter& norm;
    RowExchange& exchange;
    std::vector<const Parameter*> weights;  // of the layers that take the rows
    bool needs_all = false;                 // `all` will be called
  };
  explicit NormalisedRows(Args args);

  // The rows of all ranks.
  const LinearInput& all();

  // Returns the gradient of x from that of the rows, which is given up, with `around_tD` added if defined. Adds that of
  // the norm's weight, and calls `add_weight_grads` once with the rows of all ranks.
  Tensor backward(const Pending& grad_tD, const Tensor& around_tD,
                  const std::function<void(const LinearInput& rows_TD)>& add_weight_grads);

 private:
  enum class Way { kInFloat8, kByBackward, kBefore };
  static Way way_of(const Args& args);

  Args args_;
  Way way_;
  Pending arriving_;
  LinearInput all_ = Tensor();
};

}  // namespace titanium::ops
