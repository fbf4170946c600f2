#include "titanium/ops/row_exchange.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace titanium::ops {
namespace {

class AllRowsHere : public RowExchange {
 public:
  int64_t ranks() const override { return 1; }
  Pending gather(const Tensor& rows) override {
    return [rows] { return rows; };
  }
  Pending reduce_scatter(const Tensor& partial) override {
    return [partial] { return partial; };
  }
  Tensor gather_columns(const Tensor& columns) override { return columns; }
  void sum(const Tensor&) override {}
  void max(const Tensor&) override {}
};

int64_t pieces_of(const RowExchange& exchange, int64_t rows_here) {
  return rows_here % exchange.pieces() == 0 ? exchange.pieces() : 1;
}

// The rows of one piece: the same stretch of every rank's rows. [T, D] -> [n, t/pieces, D].
Tensor piece_of(const Tensor& x_TD, int64_t ranks, int64_t pieces, int64_t piece) {
  return x_TD.view({ranks, pieces, -1, x_TD.size(1)}).select(1, piece);
}

}  // namespace

RowExchange& all_rows_here() {
  static AllRowsHere here;
  return here;
}

Tensors map_gathered(RowExchange& exchange, const Tensor& rows_tD, const RowFunction& f, Tensor* gathered) {
  const int64_t ranks = exchange.ranks(), pieces = pieces_of(exchange, rows_tD.size(0));
  if (pieces == 1) {
    const Tensor all_TD = exchange.gather(rows_tD)();
    if (gathered != nullptr) *gathered = all_TD;
    return f({all_TD});
  }
  std::vector<Pending> arriving;
  for (const Tensor& piece : rows_tD.chunk(pieces)) arriving.push_back(exchange.gather(piece));
  const int64_t tokens = rows_tD.size(0) * ranks;
  const auto whole = [&](const Tensor& part) { return at::empty({tokens, part.size(1)}, part.options()); };
  const auto store = [&](const Tensor& part, const Tensor& all, int64_t piece) {
    piece_of(all, ranks, pieces, piece).copy_(part.view({ranks, -1, part.size(1)}));
  };
  if (gathered != nullptr) *gathered = whole(rows_tD);
  Tensors results;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const Tensor rows = arriving[piece]();
    if (gathered != nullptr) store(rows, *gathered, piece);
    const Tensors parts = f({rows});
    for (size_t i = 0; i < parts.size(); ++i) {
      if (piece == 0) results.push_back(whole(parts[i]));
      store(parts[i], results[i], piece);
    }
  }
  return results;
}

Pending scatter_mapped(RowExchange& exchange, const Tensors& inputs, const std::function<Tensor(const Tensors&)>& f) {
  const int64_t ranks = exchange.ranks(), pieces = pieces_of(exchange, inputs[0].size(0) / ranks);
  if (pieces == 1) return exchange.reduce_scatter(f(inputs));
  std::vector<Pending> arriving;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    Tensors rows;
    for (const Tensor& input : inputs) rows.push_back(piece_of(input, ranks, pieces, piece).flatten(0, 1));
    arriving.push_back(exchange.reduce_scatter(f(rows)));
  }
  return [arriving] {
    Tensors rows;
    for (const Pending& piece : arriving) rows.push_back(piece());
    return at::cat(rows);
  };
}

}  // namespace titanium::ops
