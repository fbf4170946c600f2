// Tokens spread over ranks. T tokens in all, n ranks, t = T/n rows here, D columns.
#pragma once

#include <functional>

#include "titanium/ops/record.h"

namespace titanium::ops {

// A result that is on its way: call once, when it is needed.
using Pending = std::function<Tensor()>;

// Note [Rows and parts]
// With tensor parallelism a rank computes with a part of each weight. Between the products, where every row is treated
// alone (norms, residuals), it holds only its own t rows. Before a product the rows of all ranks are gathered; a
// product that sums over a cut dimension gives partial sums, which are added up and scattered back to rows.
// Operators take the exchange as an argument; parallel/ implements it, and `all_rows_here` is that of one rank.
class RowExchange {
 public:
  virtual ~RowExchange() = default;
  virtual int64_t ranks() const = 0;
  // All-gather of rows, [t, D] -> [T, D].
  virtual Pending gather(const Tensor& rows) = 0;
  // Reduce-scatter: the partial sums of all ranks are added, and each rank gets its rows, [T, D] -> [t, D].
  virtual Pending reduce_scatter(const Tensor& partial) = 0;
  // All-gather of columns, [T, V/n] -> [T, V].
  virtual Tensor gather_columns(const Tensor& columns) = 0;
  // All-reduce over the ranks, in place.
  virtual void sum(const Tensor& tensor) = 0;
  virtual void max(const Tensor& tensor) = 0;
  // Exchanges that stand next to a product are cut into so many pieces, to overlap with it.
  virtual int64_t pieces() const { return 1; }
};

RowExchange& all_rows_here();

// Tensors whose rows belong together.
using RowFunction = std::function<Tensors(const Tensors& rows)>;

// f(gather(rows)), piece by piece. f treats every row alone. `gathered`, if not null, gets the gathered rows.
Tensors map_gathered(RowExchange& exchange, const Tensor& rows_tD, const RowFunction& f, Tensor* gathered = nullptr);

// reduce_scatter(f(inputs)), piece by piece. f treats every row alone and returns one tensor.
Pending scatter_mapped(RowExchange& exchange, const Tensors& inputs, const std::function<Tensor(const Tensors&)>& f);

}  // namespace titanium::ops
