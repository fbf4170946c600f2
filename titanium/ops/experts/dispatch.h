// Rows for experts. T tokens with K choices each make R = T * K rows; D columns, E experts.
#pragma once

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

// Note [Rows of experts]
// Every choice of a token is a row. The rows of an expert lie together, in the order of tokens and then of choices, so
// that every layout has the same sums in the same order. All of it is found on the device; the host knows R alone.
struct Dispatch {
  Tensor row_of_choice_R;  // int32; choice k of token t is number t * K + k
  Tensor choice_of_row_R;  // int32; the other way round
  Tensor ends_E;           // int32; where the rows of each expert end

  Tensor counts() const;  // rows of each expert, int32
};
Dispatch sort_by_expert(const Tensor& experts_TK, int64_t experts);

// The order by expert of rows that have come in parts: those of one source after those of another, each sorted by
// expert. `counts_nE`, int32, has the rows of each part. A choice is the place of an arrival.
Dispatch order_parts(const Tensor& counts_nE, int64_t rows);

// Row r is that of the token that its choice belongs to; times the weight of the choice, if there are weights [T, K].
Tensor gather_rows(const Tensor& x_TD, const Dispatch& dispatch, const Tensor& weights_TK = {});

// Row i is row index[i] of x.
Tensor take_rows(const Tensor& x_RC, const Tensor& index_R);

// For each token the sum of its rows in the order of its choices, each times its weight if there are weights, added to
// `added_TD` if defined. Computed in fp32 (fp64 for fp64) and rounded once.
struct Combination {
  Tensor weights_TK = {};
  Tensor added_TD = {};
  // What is added to a row before: another row, or the bias of its expert.
  Tensor more_RD = {};
  Tensor bias_ED = {}, experts_TK = {};
};
Tensor combine_rows(const Tensor& rows_RD, const Dispatch& dispatch, int64_t top_k, const Combination& with = {});

}  // namespace titanium::ops
